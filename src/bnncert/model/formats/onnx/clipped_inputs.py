"""An ONNX graph with a Clip of its input before all other nodes.

A graph that rounds its input, ``round(x / step) * step``, has infinitely many levels.  Inputs of a
data box [low, high] take finitely many of them, and for these inputs the two graphs are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bnncert.errors import InputError
from bnncert.model.formats.file_content import read_bytes
from bnncert.model.formats.onnx.drafting import data_properties
from bnncert.model.formats.onnx.external import read_in_one_piece
from bnncert.model.formats.onnx.graph import parse_graph

#: The name of the added node, which messages show.
NAME = "clip_inputs"


def clipped_graph(source: Path, low: float, high: float) -> bytes:
    """Return the graph of a file with inputs clipped to [low, high], which is its data box, too."""
    if not -np.inf < low < high < np.inf:
        raise InputError(f"--clip is {low:g} {high:g}; expected LOW < HIGH")
    graph = parse_graph(read_bytes(source), str(source), source.parent)
    model = onnx.ModelProto()
    model.ParseFromString(read_in_one_piece(source))
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in model.graph.initializer}
    names = [_free(f"{NAME}_{part}", taken) for part in ("output", "low", "high")]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == graph.input_name:
                node.input[place] = names[0]
    bounds = [_outwards(graph.input_type, bound, end) for bound, end in ((low, -1), (high, 1))]
    if graph.opset < 11:
        settings = dict(zip(("min", "max"), map(float, bounds), strict=True))
        clip = helper.make_node("Clip", [graph.input_name], names[:1], name=NAME, **settings)
    else:
        clip = helper.make_node("Clip", [graph.input_name, *names[1:]], names[:1], name=NAME)
        for name, bound in zip(names[1:], bounds, strict=True):
            model.graph.initializer.append(numpy_helper.from_array(bound, name))
    model.graph.node.insert(0, clip)
    helper.set_model_props(model, {**graph.metadata, **data_properties(low, high, None)})
    return bytes(model.SerializeToString())


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _outwards(kind: np.dtype[Any], bound: float, end: int) -> Any:
    """Return the nearest number of a type that is not inside the range."""
    near = np.array(bound, dtype=kind)
    is_inside = float(near) * end < bound * end
    return np.array(np.nextafter(near, kind.type(end * np.inf))) if is_inside else near
