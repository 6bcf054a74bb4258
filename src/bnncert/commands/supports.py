"""`bnncert supports`: the capabilities, in the words of the VNN-LIB 2.0 verifier interface."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from bnncert.commands.options import ArithmeticOption
from bnncert.errors import InputError

#: Theories of queries: no hidden nodes, one input and one output, one network, no comparison of
#: different nodes, and linear arithmetic (of polynomials only balls are supported).
THEORIES = {
    "hidden_node_theories": "NH",
    "multiple_input_output_theories": "SIO",
    "multiple_network_theories": "SNET",
    "multiple_node_comparison_theories": "SNC",
    "arithmetic_complexity_theories": "LIN",
}

#: Disjuncts over one input region share everything but their targets; assignments are text.
SWITCHES = {"optimised_disjunctive_reasoning": "true", "serialise_assignments": "false"}


def supports(
    ctx: typer.Context,
    vnnlib_versions: Annotated[
        bool, typer.Option("--vnnlib-versions", help="Oldest and newest version of queries.")
    ] = False,
    onnx_opset_versions: Annotated[
        bool, typer.Option("--onnx-opset-versions", help="Oldest and newest operator set.")
    ] = False,
    onnx_element_types: Annotated[
        bool, typer.Option("--onnx-element-types", help="Types for which verdicts are sound.")
    ] = False,
    onnx_operators: Annotated[
        bool, typer.Option("--onnx-operators", help="Operators of a binary network.")
    ] = False,
    hidden_node_theories: Annotated[bool, typer.Option("--hidden-node-theories")] = False,
    multiple_input_output_theories: Annotated[
        bool, typer.Option("--multiple-input-output-theories")
    ] = False,
    multiple_network_theories: Annotated[bool, typer.Option("--multiple-network-theories")] = False,
    multiple_node_comparison_theories: Annotated[
        bool, typer.Option("--multiple-node-comparison-theories")
    ] = False,
    arithmetic_complexity_theories: Annotated[
        bool, typer.Option("--arithmetic-complexity-theories")
    ] = False,
    optimised_disjunctive_reasoning: Annotated[
        bool, typer.Option("--optimised-disjunctive-reasoning")
    ] = False,
    serialise_assignments: Annotated[bool, typer.Option("--serialise-assignments")] = False,
    arithmetic: ArithmeticOption = "real",
) -> None:
    """Answer one question about the capabilities, as the VNN-LIB 2.0 standard asks it."""
    asked = [name for name in QUESTIONS if ctx.params[name]]
    if len(asked) != 1:
        flags = ", ".join("--" + name.replace("_", "-") for name in QUESTIONS)
        raise InputError(f"supports answers exactly one question at a time; give one of {flags}")
    for line in answer(asked[0], arithmetic):
        print(line)


#: The questions in the order of the standard.
QUESTIONS = (
    *("vnnlib_versions", "onnx_opset_versions", "onnx_element_types", "onnx_operators"),
    *THEORIES,
    *SWITCHES,
)


def answer(question: str, arithmetic: str = "real") -> list[str]:
    """Return the lines of the answer to one question."""
    if question == "vnnlib_versions":
        return ["1.0", "1.0" if importlib.util.find_spec("vnnlib") is None else "2.0"]
    if question == "onnx_element_types":
        # A verdict holds for real arithmetic, or for float32 where that is asked for.
        return [arithmetic]
    if question == "onnx_opset_versions":
        from bnncert.formats.onnx.graph import OLDEST_OPSET, newest_opset

        return [str(OLDEST_OPSET), str(newest_opset())]
    if question == "onnx_operators":
        from bnncert.formats.onnx.reader import HANDLERS

        # Brevitas defines this one, not ONNX.
        return sorted(set(HANDLERS) - {"BipolarQuant"})
    return [{**THEORIES, **SWITCHES}[question]]
