"""Random graphs with every form of every operator that is read, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bnncert.errors import BnncertError
from bnncert.model import loading
from bnncert.model.formats.onnx.folding import FOLDS
from bnncert.model.formats.onnx.graph import NEWEST_OPSET, OLDEST_OPSET
from bnncert.model.formats.onnx.operators import HANDLERS
from bnncert.model.formats.onnx.reader import read_onnx
from bnncert.model.loading import compared
from bnncert.model.network import Network
from tests.model.formats.random_onnx.changes import CHANGES, change
from tests.model.formats.random_onnx.comparison import compare
from tests.model.formats.random_onnx.constants import REDUCTIONS
from tests.model.formats.random_onnx.graphs import FORMS, random_graph

#: Graphs that may be tried for one form until one of them is read and compared.
ATTEMPTS = 12


def test_random_graphs_agree_with_onnxruntime() -> None:
    refused, not_run = 0, list[str]()
    for number in range(len(FORMS)):
        comparison = compare(random_graph(11, number))
        for attempt in range(1, ATTEMPTS):
            assert comparison.outcome != "wrong", f"{number}: {comparison.text}"
            if comparison.outcome == "agrees":
                break
            refused += comparison.outcome == "refused"
            comparison = compare(random_graph(11, number + attempt * len(FORMS)))
        if comparison.outcome == "no runtime":
            not_run.append(list(FORMS)[number])
        else:
            assert comparison.outcome == "agrees", list(FORMS)[number]
    assert refused < 0.05 * len(FORMS)
    # The last onnxruntime for Python 3.10 does not run reductions over no axes at all.
    assert [form for form in not_run if "noop" not in form] == []


def test_the_comparison_with_onnxruntime_raises_no_false_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "MOST_POINTS", 64)
    counted = 0
    numbers = range(0, len(FORMS), 2)
    for number in numbers:
        content = random_graph(21, number).model().SerializeToString()
        try:
            description = read_onnx(content, f"graph {number}")
            network = Network.from_description(description)
        except BnncertError:
            continue
        # Graphs with operators that onnxruntime has not have a note.
        counted += compared(network, description).notes == network.notes
    assert counted > 0.8 * len(numbers)


def test_changed_graphs_are_refused_or_agree_with_onnxruntime() -> None:
    outcomes: dict[str, int] = {}
    for number in range(8 * len(CHANGES)):
        b = random_graph(12, 7 * number)
        what = change(b, number)
        comparison = compare(b)
        assert comparison.outcome != "wrong", f"{number}, {what}: {comparison.text}"
        outcomes[comparison.outcome] = outcomes.get(comparison.outcome, 0) + 1
    assert outcomes["agrees"] >= 13 and outcomes["refused"] >= 13


def test_every_operator_that_is_read_has_random_graphs() -> None:
    used = {node.op_type for number in range(len(FORMS)) for node in random_graph(11, number).nodes}
    assert used >= {*FOLDS, *HANDLERS}


#: The attributes of all operators that are read, as of the newest operator set that is known.
ATTRIBUTES: dict[str, set[str]] = {
    "ArgMax": {"axis", "keepdims", "select_last_index"},
    "AveragePool": {
        *("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape"),
        *("pads", "strides"),
    },
    "BatchNormalization": {"epsilon", "momentum", "spatial", "training_mode"},
    "Cast": {"to", "saturate", "round_mode"},
    "Clip": {"min", "max"},
    "Concat": {"axis"},
    "Constant": {
        *("value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints"),
        *("value_string", "value_strings"),
    },
    "ConstantOfShape": {"value"},
    "Conv": {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"},
    "Dropout": {"ratio", "seed"},
    "Flatten": {"axis"},
    "Gather": {"axis"},
    "Gemm": {"alpha", "beta", "transA", "transB"},
    "HardSigmoid": {"alpha", "beta"},
    "LeakyRelu": {"alpha"},
    "LogSoftmax": {"axis"},
    "MaxPool": {
        *("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order"),
        "strides",
    },
    "Pad": {"mode", "pads", "value"},
    **{kind: {"axes", "keepdims", "noop_with_empty_axes"} for kind in REDUCTIONS},
    "Reshape": {"allowzero"},
    "Shape": {"start", "end"},
    "Slice": {"axes", "ends", "starts"},
    "Softmax": {"axis"},
    "Squeeze": {"axes"},
    "Transpose": {"perm"},
    "Unsqueeze": {"axes"},
}


@pytest.mark.parametrize("op", sorted({*FOLDS, *HANDLERS} - {"BipolarQuant"}))
def test_all_attributes_in_the_specification_are_known(op: str) -> None:
    found: set[str] = set()
    for opset in range(OLDEST_OPSET, min(NEWEST_OPSET, onnx.defs.onnx_opset_version()) + 1):
        try:
            found |= set(onnx.defs.get_schema(op, opset).attributes)
        except onnx.defs.SchemaError:
            continue
    # An older package has older operator sets.
    assert found <= ATTRIBUTES.get(op, set())


def test_graphs_depend_on_seed_and_number_alone() -> None:
    first, second, other = (random_graph(3, n).model().SerializeToString() for n in (5, 5, 6))
    assert first == second != other
    assert np.array_equal(*(random_graph(3, 5).numbers((9,)) for _ in range(2)))
