"""Random networks that contain one form of one operator for certain, and others by chance."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from tests.model.formats.random_onnx import constants, values
from tests.model.formats.random_onnx.builder import Builder, Form
from tests.model.formats.random_onnx.values import apply, row

#: Every form of every operator, by name.
FORMS: dict[str, Form] = dict(constants.FORMS)
for _group in values.GROUPS:
    FORMS |= _group


@cache
def newest_opset() -> int:
    """Return the newest operator set that the installed onnxruntime runs."""
    item = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [item], [out])
    for opset in range(28, 17, -1):
        sets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, ir_version=8, opset_imports=sets)
        try:
            onnxruntime.InferenceSession(model.SerializeToString())
        except Exception:
            continue
        return opset
    return 17


def random_graph(seed: int, number: int) -> Builder:
    """Return graph `number`: the forms take turns in being the one that it contains for certain."""
    rng = np.random.default_rng([seed, number])
    wanted = list(FORMS)[number % len(FORMS)]
    form = FORMS[wanted]
    opset = int(rng.integers(form.first, min(form.last, newest_opset()) + 1))
    is_image = wanted in values.CONVOLUTIONS or wanted in values.IMAGES or rng.random() < 0.3
    if is_image:
        spatial = rng.integers(3, 7, size=int(rng.integers(1, 3)))
        shape: tuple[int, ...] = (1, int(rng.integers(1, 3)), *(int(n) for n in spatial))
    else:
        shape = (1, int(rng.integers(2, 9)))
    b = Builder(rng=rng, opset=opset, shape=shape, wanted=wanted)
    if is_image:
        _image_layer(b)
        row(b)
    for _ in range(int(rng.integers(0 if is_image else 1, 3))):
        _dense_layer(b)
    _scores(b)
    apply(b, values.ENDS, 0.3)
    assert b.wanted is None, f"{wanted} has no place in graph {number}"
    return b


def _image_layer(b: Builder) -> None:
    if b.wanted in values.IMAGES and b.chance(0.2):
        apply(b, values.IMAGES)
    if len(b.shape) > 2 and min(b.shape[2:]) >= 3:
        apply(b, values.CONVOLUTIONS)
        apply(b, values.STEPS, 0.3)
    if b.wanted in values.IMAGES and b.chance(0.5):
        apply(b, values.IMAGES)
    apply(b, values.SIGNS)
    b.hidden = True
    if len(b.shape) > 2:
        apply(b, values.IMAGES, 0.3)
    apply(b, values.MOVERS, 0.3)


def _dense_layer(b: Builder) -> None:
    apply(b, values.DENSE)
    row(b)
    apply(b, values.STEPS, 0.4)
    apply(b, values.SIGNS)
    apply(b, values.MOVERS, 0.3)
    row(b)
    b.hidden = True


def _scores(b: Builder) -> None:
    b.hidden = False
    if b.wanted in values.DENSE:
        apply(b, values.DENSE)
        row(b)
    else:
        classes = b.integer(2, 4)
        b.then("MatMul", constants.constant(b, (b.size, classes)), shape=(1, classes))
    apply(b, values.STEPS, 0.3)
