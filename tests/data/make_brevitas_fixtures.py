"""Write Brevitas models as QONNX, and what PyTorch computes with them.

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

SHAPES = {"dense": (16,), "images": (1, 8, 8), "two_bits": (16,), "relu": (1, 8, 8)}


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


def models_with_levels() -> dict[str, Any]:
    """Return a network with two bits, as TFC_2W2A, and one with quantised ReLUs and pooling."""
    from brevitas.core.scaling import ScalingImplType
    from brevitas.nn import QuantConv2d, QuantIdentity, QuantLinear, QuantReLU
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerTensorFloat
    from brevitas.quant import SignedBinaryWeightPerTensorConst as Weights
    from torch import nn

    class Ternary(Int8WeightPerTensorFloat):
        bit_width, narrow_range = 2, True
        scaling_impl_type, scaling_init = ScalingImplType.CONST, 1.0

    class Levels(Int8ActPerTensorFloat):
        bit_width, narrow_range = 2, True
        scaling_impl_type, scaling_init = ScalingImplType.CONST, 1.0

    ternary = {"bias": False, "weight_quant": Ternary}
    two_bits = nn.Sequential(
        *(QuantIdentity(act_quant=Levels), QuantLinear(16, 8, **ternary), nn.BatchNorm1d(8)),
        *(QuantIdentity(act_quant=Levels), QuantLinear(8, 8, **ternary), nn.BatchNorm1d(8)),
        *(QuantIdentity(act_quant=Levels), QuantLinear(8, 3, **ternary)),
    )
    binary = {"bias": False, "weight_quant": Weights}
    relu = nn.Sequential(
        *(QuantConv2d(1, 4, 3, padding=1, **binary), nn.BatchNorm2d(4)),
        *(QuantReLU(bit_width=2), nn.MaxPool2d(2), QuantConv2d(4, 6, 3, **binary)),
        *(nn.BatchNorm2d(6), QuantReLU(bit_width=3), nn.Flatten(), QuantLinear(24, 3, **binary)),
    )
    for module in (*two_bits, *relu):
        if isinstance(module, QuantLinear):
            module.weight.data.uniform_(-1, 1)
    return {"two_bits": two_bits, "relu": relu}


def main() -> None:
    """Write all files."""
    write(models(), "brevitas_scores.npz")
    write(models_with_levels(), "brevitas_level_scores.npz")


def write(made: dict[str, Any], scores_name: str) -> None:
    """Write the files of some models, and their scores."""
    import onnx
    import torch
    from brevitas.export import export_qonnx

    torch.manual_seed(3)
    scores: dict[str, Any] = {}
    for name, model in made.items():
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
            exported = onnx.load(str(path))
        # The exporter writes the places in the source code that the nodes come from.
        for node in exported.graph.node:
            del node.metadata_props[:]
        content = exported.SerializeToString()
        (FOLDER / f"brevitas_{name}.onnx.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    np.savez_compressed(FOLDER / scores_name, **scores)


if __name__ == "__main__":
    main()
