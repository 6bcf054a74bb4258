"""Witness files: numbers that read back exactly, in the format of VNN-COMP."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert import Counterexample
from bnncert.engine.verdict import Result
from bnncert.report.vnncomp_files import number_text, vnncomp_result, witness_text

CASES = settings(max_examples=300, deadline=None, derandomize=True)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
@CASES
def test_a_number_reads_back_as_the_same_float64(value: float) -> None:
    text = number_text(value)
    assert float(text) == value
    assert "e" not in text.lower()


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
@CASES
def test_a_float32_number_reads_back_in_single_and_in_double(value: float) -> None:
    text = number_text(value)
    assert np.float32(text) == np.float32(value)
    assert np.float64(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.5, "-0.5"),
        (0.0, "0.0"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (123456789.0, "123456789.0"),
        (float(np.float32(0.1)), "0.10000000149011612"),
    ],
)
def test_numbers_are_decimals_without_an_exponent(value: float, text: str) -> None:
    assert number_text(value) == text


def found() -> Counterexample:
    point = np.array([0.25, float(np.float32(-0.1))])
    return Counterexample(point, None, "class 1", Fraction(-2), np.array([1.0, 3.0]))


def test_a_witness_is_one_list_of_pairs() -> None:
    assert witness_text(found()) == (
        "((X_0 0.25)\n(X_1 -0.10000000149011612)\n(Y_0 1.0)\n(Y_1 3.0))\n"
    )


def test_a_result_file_has_the_word_and_the_witness() -> None:
    sat = Result("not_robust", (), 0.0, "milp", counterexample=found())
    assert vnncomp_result(sat) == "sat\n" + witness_text(found())


@pytest.mark.parametrize(
    ("status", "word"), [("robust", "unsat"), ("unknown", "unknown"), ("timeout", "timeout")]
)
def test_a_result_without_a_counterexample_is_one_word(status: str, word: str) -> None:
    assert vnncomp_result(Result(status, (), math.pi, "lp")) == word + "\n"  # type: ignore[arg-type]
