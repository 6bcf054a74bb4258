"""`bnncert info`: the content of a network file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bnncert.cli.files import json_path, refuse_unwritable, write_json
from bnncert.cli.grouping import grouped
from bnncert.cli.options import JsonOption, ModelOptions
from bnncert.model.formats.atomic import write_atomically

if TYPE_CHECKING:
    from bnncert.model.network import Network


@grouped
def info(
    source: ModelOptions,
    json_: JsonOption = None,
    thresholds: Annotated[Path | None, "Write the threshold of every neuron as CSV."] = None,
) -> None:
    """Print layers, sizes, sparsity and thresholds of a network."""
    from bnncert.cli.consoles import PlainConsole, wide_console
    from bnncert.report.tables import network_table

    refuse_unwritable(json_path(json_), thresholds, read=source.files)
    network = source.read()
    console = PlainConsole(stderr=json_ == "-")
    shape = " x ".join(map(str, network.input_shape))
    box = "not stated"
    if network.input_lo is not None and network.input_hi is not None:
        box = f"[{network.input_lo.min():.9g}, {network.input_hi.max():.9g}]"
    lines = (
        f"{network.source} ({network.kind})",
        f"inputs {network.inputs} (shape {shape}), data box {box}, classes {network.classes}, "
        f"threshold layers {network.depth}, zero weights {100 * network.zero_fraction:.2f} %",
        f"hash {network.content_hash}",
    )
    for line in lines:
        console.say(line)
    wide_console(stderr=json_ == "-").print(network_table(network))
    console.notes(network.notes)
    if thresholds is not None:
        from bnncert.report.csv_export import threshold_csv

        write_atomically(thresholds, threshold_csv(network))
        console.say(f"thresholds: {thresholds}")
    write_json(json_, _tree(network))


def _tree(network: Network) -> dict[str, Any]:
    """State the same as the table, and the whole data box, for JSON."""
    import numpy as np

    from bnncert.model.network import weight_values

    layers = [
        {
            "name": layer.name,
            "inputs": layer.inputs,
            "neurons": layer.size,
            "nonzeros": int(layer.weights.nnz),
            "values": weight_values(layer.weights.data, layer.size * layer.inputs),
            "sign_zero": layer.sign_zero,
            "integer": layer.is_lattice,
        }
        for layer in network.layers
    ]
    weights = network.output.weights
    lo, hi = network.input_lo, network.input_hi
    return {
        "model": network.source,
        "kind": network.kind,
        "hash": network.content_hash,
        "inputs": network.inputs,
        "input_shape": list(network.input_shape),
        "input_lo": None if lo is None else lo.tolist(),
        "input_hi": None if hi is None else hi.tolist(),
        "classes": network.classes,
        "sizes": list(network.sizes),
        "zero_fraction": network.zero_fraction,
        "layers": layers,
        "output": {
            "name": network.output.name,
            "inputs": int(weights.shape[1]),
            "neurons": network.classes,
            "nonzeros": int(np.count_nonzero(weights)),
            "values": weight_values(weights[weights != 0], weights.size),
        },
        "output_transform": network.output_transform,
        "notes": list(network.notes),
    }
