"""`bnncert methods` and `supports`: the capabilities, as a table and as VNN-LIB 2.0 asks."""

from __future__ import annotations

import importlib.util
from dataclasses import field, make_dataclass
from typing import Annotated

import typer

from bnncert.cli.grouping import flag_of, grouped
from bnncert.errors import InputError

#: Theories of queries: no hidden nodes, one input and one output of each network, any number of
#: networks, no comparison of different nodes, and linear arithmetic (of polynomials only balls are
#: supported).  A theory also stands for those that it contains.
THEORIES = {
    "hidden_node_theories": ("NH",),
    "multiple_input_output_theories": ("SIO",),
    "multiple_network_theories": ("SNET", "MENET", "MINET", "MNET"),
    "multiple_node_comparison_theories": ("SNC",),
    "arithmetic_complexity_theories": ("BND", "OUTC", "LIN"),
}

#: Disjuncts over one input region share all work except that of their targets; assignments are
#: text; certificates have a format of their own, not that of the standard's proofs.
SWITCHES = {
    "optimised_disjunctive_reasoning": ("true",),
    "serialise_assignments": ("false",),
    "unsat_proofs": ("false",),
}


#: The questions in the order of the standard, and their texts in `--help`.
QUESTIONS: dict[str, str | None] = {
    "vnnlib_versions": "Oldest and newest version of queries.",
    "onnx_opset_versions": "Oldest and newest operator set.",
    "onnx_element_types": "Types for which verdicts are sound.",
    "onnx_operators": "Operators of a binary network.",
    **dict.fromkeys((*THEORIES, *SWITCHES)),
}


#: One flag for each question.
Asked = make_dataclass(
    "Asked",
    [
        (name, Annotated[bool, typer.Option(flag_of(name), help=text)], field(default=False))
        for name, text in QUESTIONS.items()
    ],
)


@grouped
def supports(*, asked: Asked) -> None:  # type: ignore[valid-type]
    """Answer one question about the capabilities, as the VNN-LIB 2.0 standard asks it."""
    questions = [name for name in QUESTIONS if getattr(asked, name)]
    if len(questions) != 1:
        flags = ", ".join(map(flag_of, QUESTIONS))
        raise InputError(f"supports answers exactly one question at a time; give one of {flags}")
    for line in answer(questions[0]):
        print(line)


def methods() -> None:
    """Print the methods, what they promise and what they need."""
    from bnncert.cli.consoles import wide_console
    from bnncert.report.tables import methods_table

    wide_console().print(methods_table())


def answer(question: str) -> list[str]:
    """Answer one question in the words of the standard, a line each."""
    if question == "vnnlib_versions":
        return ["1.0", "1.0" if importlib.util.find_spec("vnnlib") is None else "2.0"]
    if question == "onnx_element_types":
        # The type that a query declares decides about the arithmetic of its answer.
        return ["float32", "real"]
    if question == "onnx_opset_versions":
        from bnncert.model.formats.onnx.graph import OLDEST_OPSET, newest_opset

        return [str(OLDEST_OPSET), str(newest_opset())]
    if question == "onnx_operators":
        from bnncert.model.formats.onnx.operators import HANDLERS

        # Brevitas defines this one, not ONNX.
        return sorted(set(HANDLERS) - {"BipolarQuant"})
    return list({**THEORIES, **SWITCHES}[question])
