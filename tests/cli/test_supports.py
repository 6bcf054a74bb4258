"""The capabilities that `bnncert supports` reports."""

from __future__ import annotations

import pytest

from bnncert.cli import supports
from bnncert.model.formats.onnx.graph import OLDEST_OPSET
from bnncert.model.formats.onnx.operators import HANDLERS
from bnncert.version import __version__
from tests.cli.diamond import Run

#: The values that the standard permits for theories.
PERMITTED = {
    "hidden_node_theories": {"NH", "H"},
    "multiple_input_output_theories": {"SIO", "MIO"},
    "multiple_network_theories": {"SNET", "MENET", "MINET", "MNET"},
    "multiple_node_comparison_theories": {"SNC", "MNC"},
    "arithmetic_complexity_theories": {"BND", "OUTC", "LIN", "POLY"},
    "optimised_disjunctive_reasoning": {"true", "false"},
    "serialise_assignments": {"true", "false"},
}


@pytest.mark.parametrize("question", supports.QUESTIONS)
def test_every_question_has_an_answer(run: Run, question: str) -> None:
    done = run("supports", "--" + question.replace("_", "-"))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines == supports.answer(question)
    assert set(lines) <= PERMITTED.get(question, set(lines))


def test_types_are_those_for_which_a_verdict_is_sound(run: Run) -> None:
    assert run("supports", "--onnx-element-types").out == "real\n"
    exact = run("supports", "--onnx-element-types", "--arithmetic", "float32")
    assert exact.out == "float32\n"


def test_versions_and_operators() -> None:
    oldest, newest = map(int, supports.answer("onnx_opset_versions"))
    assert OLDEST_OPSET == oldest < newest
    operators = supports.answer("onnx_operators")
    assert {"Conv", "MatMul", "Sign"} <= set(operators) < set(HANDLERS)
    assert supports.answer("vnnlib_versions")[0] == "1.0"


@pytest.mark.parametrize("flags", [(), ("--onnx-operators", "--vnnlib-versions")])
def test_one_question_at_a_time(run: Run, flags: tuple[str, ...]) -> None:
    done = run("supports", *flags)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "exactly one question" in done.err


def test_name_and_version(run: Run) -> None:
    assert run("--name").out == "bnncert\n"
    assert run("--version").out == f"{__version__}\n"
