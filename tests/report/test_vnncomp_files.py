"""Witness files with numbers that read back exactly, and the page of a results.csv."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert import Counterexample
from bnncert.engine.verdict import Result
from bnncert.report.vnncomp_files import (
    Line,
    ResultsTable,
    competition_page,
    number_text,
    vnncomp_result,
    witness_text,
)
from tests.in_process import Outcome, command_line
from tests.strategies import few

CASES = few(50)


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


LINE = Line(
    *("traffic", "onnx/net.onnx", "vnnlib/q1.vnnlib", 60.0, "auto", "q1.txt", "m", "q"),
    **{"word": "unsat", "seconds": 1.25, "stage": "sdp", "certificate": 1000, "memory": 2 * 10**9},
)
LINES = (
    LINE,
    replace(LINE, vnnlib="q2.vnnlib.gz", word="sat", file="q2", certificate=None, replayed="exact"),
    replace(LINE, category="cctsdb", word="timeout", file="q3", seconds=60.5, certificate=0),
)


def cells(page: str) -> list[list[str]]:
    lines = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


def test_the_page_has_categories_and_instances() -> None:
    page = competition_page(LINES, "results.csv")
    heads, traffic, other, _, first, second, *_ = cells(page)
    assert heads[:4] == ["category", "instances", "sat", "unsat"]
    assert traffic == ["traffic", "2", "1", "1", "0", "0", "0", "2.5", "1.25", "1"]
    assert other == ["cctsdb", "1", "0", "0", "0", "1", "0", "60.5", "60.50", "0"]
    # What is the same in all rows is said once.
    assert first == ["q1", "unsat", "-", "1000 bytes"]
    assert second == ["q2", "sat", "exact", "-"]
    same = "network net.onnx, seconds 1.25, limit 60, decided by sdp, GB 2.00"
    assert f"The same in all rows: {same}." in page
    assert "<h1>VNN-COMP: traffic, cctsdb</h1>" in page
    assert "Of 3 queries, 1 hold on the whole region (unsat), 1 have a counterexample" in page
    assert "1 sat, 1 unsat, 0 unknown, 1 timeout, 0 error of 3 in 63.0 s (results.csv)" in page


def test_the_page_has_the_style_of_the_report_and_a_chart_of_what_was_decided() -> None:
    page = competition_page(LINES, "results.csv")
    assert "--not_robust: " in page and 'class="cactus"' in page
    assert "traffic: 2 of 2" in page and "cctsdb: 0 of 1" in page
    # There is no script that buttons could call.
    assert "<button" not in page and "<script" not in page
    assert "not drawn, one instance was decided" in competition_page(LINES[:1], "results.csv")


def test_nothing_of_the_file_becomes_markup() -> None:
    evil = "<script>x</script>"
    lines = [replace(LINE, category=evil, onnx=evil, vnnlib=evil, stage=evil, reason=evil)]
    assert "<script>" not in competition_page(lines, evil)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    report = command_line(monkeypatch, capsys, "report")

    def refused(*arguments: str) -> str:
        answer: Outcome = report(*arguments)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        return answer.err

    table = ResultsTable(Path("results.csv"))
    for line in LINES:
        table.put(line)
    answer = report("results.csv", "-o", "page.html")
    assert (answer.code, answer.err) == (0, "")
    assert "<h1>VNN-COMP: " in Path("page.html").read_text("utf-8")
    assert answer.out.startswith("1 sat, 1 unsat, ")
    assert "--csv is for results files" in refused("results.csv", "-o", "p.html", "--csv", "dir")
    assert "none.csv: no such file" in refused("none.csv", "-o", "p.html")
    Path("other.csv").write_text("a,b\n")
    assert "other.csv:1: not a row that" in refused("other.csv", "-o", "p.html")
    Path("empty.csv").write_text("")
    assert "empty.csv: holds no results yet" in refused("empty.csv", "-o", "p.html")
