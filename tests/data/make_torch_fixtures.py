"""Write a model as `torch.onnx.export` writes it today: weights in a file beside it.

Run where torch, onnx and onnxscript are installed::

    python tests/data/make_torch_fixtures.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from make_larq_fixtures import FOLDER, inputs

NAME = "torch_dense.onnx"


def model() -> Any:
    """Return a network 16-8-8-3 with weights -1 and 1."""
    import torch
    from torch import nn

    class Sign(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.where(x >= 0, 1.0, -1.0)

    torch.manual_seed(5)
    layers = nn.Sequential(
        *(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Hardtanh(), Sign()),
        *(nn.Linear(8, 8), nn.BatchNorm1d(8), Sign(), nn.Linear(8, 3)),
    )
    for module in layers:
        if isinstance(module, nn.Linear):
            module.weight.data = torch.where(module.weight.data >= 0, 1.0, -1.0)
        if isinstance(module, nn.BatchNorm1d):
            module.weight.data.normal_(0.0, 1.0)
            module.bias.data.normal_(0.0, 0.1)
            module.running_mean.normal_(0.0, 1.0)
            module.running_var.uniform_(0.5, 2.0)
    return layers.eval()


def main() -> None:
    """Write all files."""
    import onnx
    import torch

    network = model()
    path = FOLDER / NAME
    torch.onnx.export(network, (torch.zeros(1, 16),), str(path))
    # The exporter writes the places in the source code that the nodes come from.
    written = onnx.load(str(path), load_external_data=False)
    for node in written.graph.node:
        del node.metadata_props[:]
    path.write_bytes(written.SerializeToString())
    with torch.no_grad():
        scores = np.asarray(network(torch.from_numpy(inputs((16,)))))
    np.savez_compressed(FOLDER / "torch_scores.npz", dense=scores)


if __name__ == "__main__":
    main()
