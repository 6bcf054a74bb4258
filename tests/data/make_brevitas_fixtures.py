"""Write two Brevitas models as QONNX, and what PyTorch computes with them.

Run where brevitas, onnx, onnxscript and onnxoptimizer are installed::

    python tests/data/make_brevitas_fixtures.py
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from make_larq_fixtures import FOLDER, inputs

SHAPES = {"dense": (16,), "images": (1, 8, 8)}


def models() -> dict[str, Any]:
    """Return a network 16-8-8-3 and a convolutional one on 8 x 8 images."""
    from brevitas.nn import QuantConv2d, QuantIdentity, QuantLinear
    from brevitas.quant import SignedBinaryActPerTensorConst as Signs
    from brevitas.quant import SignedBinaryWeightPerTensorConst as Weights
    from torch import nn

    binary = {"bias": False, "weight_quant": Weights}
    dense = nn.Sequential(
        QuantLinear(16, 8, **binary),
        nn.BatchNorm1d(8),
        QuantIdentity(act_quant=Signs),
        QuantLinear(8, 8, **binary),
        nn.BatchNorm1d(8),
        QuantIdentity(act_quant=Signs),
        QuantLinear(8, 3, **binary),
    )
    images = nn.Sequential(
        QuantConv2d(1, 4, 3, padding=1, **binary),
        nn.BatchNorm2d(4),
        QuantIdentity(act_quant=Signs),
        nn.MaxPool2d(2),
        QuantConv2d(4, 6, 3, **binary),
        nn.BatchNorm2d(6),
        QuantIdentity(act_quant=Signs),
        nn.Flatten(),
        QuantLinear(24, 3, **binary),
    )
    return {"dense": dense, "images": images}


def main() -> None:
    """Write all files."""
    import torch
    from brevitas.export import export_qonnx

    torch.manual_seed(3)
    scores: dict[str, Any] = {}
    for name, model in models().items():
        for module in model.modules():
            if "BatchNorm" in type(module).__name__:
                # Weights are -0.1 and 0.1, so sums are small.
                module.weight.data.normal_(0.0, 1.0)
                module.bias.data.normal_(0.0, 0.1)
                module.running_mean.normal_(0.0, 0.05)
                module.running_var.uniform_(0.01, 0.3)
        model.eval()
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            scores[name] = np.asarray(model(torch.from_numpy(inputs(SHAPES[name]))))
            path = Path(folder) / "net.onnx"
            export_qonnx(model, torch.zeros(1, *SHAPES[name]), export_path=str(path))
            content = path.read_bytes()
        (FOLDER / f"brevitas_{name}.onnx.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    np.savez_compressed(FOLDER / "brevitas_scores.npz", **scores)


if __name__ == "__main__":
    main()
