"""The capabilities that `bnncert supports` reports."""

from __future__ import annotations

import pytest

from bnncert.cli import supports
from bnncert.cli.standard_query import SOUND_TYPES
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
    "unsat_proofs": {"true", "false"},
}

#: The questions that a solver has to answer to be listed in the database of solvers.
LISTED = {
    *("onnx_opset_versions", "onnx_element_types", "onnx_operators", "vnnlib_versions"),
    *("hidden_node_theories", "multiple_input_output_theories", "multiple_network_theories"),
    *("multiple_node_comparison_theories", "arithmetic_complexity_theories"),
    *("optimised_disjunctive_reasoning", "serialise_assignments"),
}


@pytest.mark.parametrize("question", supports.QUESTIONS)
def test_every_question_has_an_answer(run: Run, question: str) -> None:
    done = run("supports", "--" + question.replace("_", "-"))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines == supports.answer(question)
    assert set(lines) <= PERMITTED.get(question, set(lines))


def test_all_questions_are_there() -> None:
    assert set(supports.QUESTIONS) >= LISTED


def test_types_are_those_for_which_a_verdict_is_sound() -> None:
    assert supports.answer("onnx_element_types") == list(SOUND_TYPES)


def test_several_networks_are_supported() -> None:
    assert supports.answer("multiple_network_theories") == ["SNET", "MENET", "MINET", "MNET"]


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
