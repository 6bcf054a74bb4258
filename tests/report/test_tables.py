"""Tables: what they say about results and networks."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from bnncert import Network
from bnncert.engine.verdict import Result, TargetResult
from bnncert.model.network import weight_values
from bnncert.report.tables import methods_table, network_table, number, result_table, status_text


def lines(table: Table, width: int = 160) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.5, "2.5"),
        (-1.23456, "-1.235"),
        (9999.4, "9999"),
        (123456.0, "123456"),
        (math.inf, "-"),
        (-math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_numbers_are_short_and_missing_ones_a_dash(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("status", "word", "colour"),
    [
        ("robust", "robust", "green"),
        ("not_robust", "not robust", "red"),
        ("unknown", "unknown", "yellow"),
        ("timeout", "timeout", "yellow"),
    ],
)
def test_answers_have_a_word_and_a_colour(status: str, word: str, colour: str) -> None:
    result = Result(status, (), 0.0, "auto")  # type: ignore[arg-type]
    target = TargetResult("class 1", status)  # type: ignore[arg-type]
    for text in (status_text(result), status_text(target)):
        assert (text.plain, str(text.style)) == (word, colour)


def test_what_a_counterexample_left_undecided_has_words_of_its_own() -> None:
    for finding, word in (("violated", "violated"), ("not_tried", "not tried")):
        target = TargetResult("class 1", "unknown", finding=finding)  # type: ignore[arg-type]
        assert status_text(target).plain == word
        assert target.to_dict()["status"] == "unknown"
        assert target.to_dict()["finding"] == finding


def test_a_result_has_one_row_for_each_target() -> None:
    result = Result(
        "timeout",
        (
            TargetResult("class 0", "robust", lower=2.5, seconds=0.25, stage="lp"),
            TargetResult("class 1", "timeout", upper=7.0, stage="milp", note="stopped early"),
        ),
        1.0,
        "auto",
    )
    header, first, second = lines(result_table(result))
    assert header.split("  ")[0] == "target"
    assert first.split() == ["class", "0", "robust", "2.5", "-", "0.25", "lp"]
    # How far a stage came is no decision: an open target shows its note instead.
    assert second.split() == ["class", "1", "timeout", "-", "7", "0.00", "stopped", "early"]


def test_a_network_has_one_row_for_each_layer() -> None:
    network = Network.from_arrays(
        [[[0.5, 0, 0.25], [1, 0, 0]], [[1, -1], [0, 1]], [[2, 0], [1, -3]]],
        [[0, 0], [0, 0], [0, 0]],
        sign_zero="either",
    )
    _, first, second, output = (line.split() for line in lines(network_table(network)))
    assert first == ["W0", "3", "2", "3", "50.0", "%", "real", "real", "either"]
    assert second == ["W1", "2", "2", "3", "25.0", "%", "-1,", "0,", "1", "integer", "either"]
    assert output == [
        *("W2", "2", "2", "3", "25.0", "%", "integers", "up", "to", "3", "scores"),
    ]


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    result = Result("unknown", (TargetResult("[/red]", "unknown", note="[bold]"),), 0.0, "lp")
    (_, row) = lines(result_table(result))
    assert row.startswith("[/red] ")
    assert row.endswith("[bold]")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "0"),
        ([1, -1, 1], "-1, 0, 1"),
        ([1, -1, 1, 1], "-1, 1"),
        ([1, -4], "integers up to 4"),
        ([0.5, 1.0], "real"),
    ],
)
def test_the_values_of_weights(data: list[float], text: str) -> None:
    assert weight_values(np.array(data), 4) == text


def test_print_and_info_agree_about_weights_and_zeros() -> None:
    rows = [[1, 0, -1], [1, 1, -1]]
    network = Network.from_arrays([rows, [[1, 1], [1, -1]]], [[0, 0], [0, 0]])
    printed = [line.split("  ") for line in str(network).splitlines()[2:4]]
    told = [line.split("  ") for line in lines(network_table(network))[1:]]
    for one, other, values, zeros in zip(
        printed, told, ("-1, 0, 1", "-1, 1"), ("16.7 %", "0.0 %"), strict=True
    ):
        for cells in (one, other):
            assert {values, zeros} <= {cell.strip() for cell in cells}


def test_the_methods_fit_a_wide_terminal() -> None:
    assert max(map(len, lines(methods_table(), width=140))) <= 140


RESULT = Result(
    status="not_robust",
    targets=(
        TargetResult("class 3", "robust", 171.8, 200.1, 0.25, "interval"),
        TargetResult("class 12", "not_robust", -1.25, -0.5, 10.75, "sdp, attack"),
    ),
    seconds=11.0,
    method="auto",
)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (100, ["target", "answer", "lower bound", "upper bound", "seconds", "decided by"]),
        (52, ["target", "answer", "lower bound", "upper bound", "decided by"]),
        (40, ["target", "answer", "lower bound", "upper bound"]),
        (30, ["target", "answer", "lower bound"]),
    ],
)
def test_narrow_terminals_have_fewer_columns_and_no_cell_is_cut(
    width: int, columns: list[str]
) -> None:
    found = lines(result_table(RESULT), width)
    words = " ".join(found).split()
    assert max(map(len, found)) <= width
    assert all(word in words for title in columns for word in title.split())
    assert ("seconds" in words) == ("seconds" in columns)
    assert {"robust", "171.8", "-1.25", "12"} <= set(words)
    assert ("10.75" in words) == ("seconds" in columns)
    assert "…" not in "".join(found)


def test_words_that_do_not_fit_are_wrapped() -> None:
    found = lines(result_table(RESULT), 12)
    assert max(map(len, found)) <= 12
    # The words are broken where their column ends, and nothing is lost.
    assert "".join(line[:3].strip() for line in found[4:7]) == "class3"
