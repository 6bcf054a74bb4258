"""Witness points in the format that VNN-COMP's checker replays."""

from __future__ import annotations

import numpy as np

from bnncert.engine.verdict import Counterexample, Result


def number_text(value: float) -> str:
    """Return the shortest decimal that reads back as this number, in single and in double.

    A float32 number is written with the digits of a float64: fewer digits are enough for a reader
    in single precision, but are another number in double precision.
    """
    text = repr(float(value))
    # Numbers with an exponent are written out: not all readers of witnesses parse exponents.
    return np.format_float_positional(value, unique=True, trim="0") if "e" in text else text


def witness_text(counterexample: Counterexample) -> str:
    """Return ((X_0 v) .. (Y_0 v) ..), one pair a line."""
    lines = [f"(X_{i} {number_text(v)})" for i, v in enumerate(counterexample.point.tolist())]
    lines += [f"(Y_{j} {number_text(v)})" for j, v in enumerate(counterexample.scores.tolist())]
    return "(" + "\n".join(lines) + ")\n"


def vnncomp_result(result: Result) -> str:
    """Return a VNN-COMP result file: the answer, and the witness if there is one."""
    text = result.vnncomp_word + "\n"
    if result.counterexample is not None:
        text += witness_text(result.counterexample)
    return text
