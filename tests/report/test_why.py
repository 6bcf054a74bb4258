"""Why a row is undecided, in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bnncert.report.page.details import stage_seconds, why_undecided
from tests.report.test_command import KEY, ROW

TARGETS: list[dict[str, Any]] = [
    {"target": "class 1", "status": "robust", "lower": 3.0, "upper": None, "stage": "sdp"}
    | {"seconds": 1.0, "details": {"seconds": {"presolve": 0.5, "sdp": 1.0}}},
    {"target": "class 2", "status": "timeout", "lower": -1 / 3, "upper": 4.0, "stage": "sdp"}
    | {"seconds": 9.0, "details": {"seconds": {"presolve": 0.5, "attack": 8.0, "sdp": 1.0}}}
    | {"note": "the time limit was reached"},
    {"target": "class 3", "status": "timeout", "lower": -0.25, "upper": None, "stage": "sdp"}
    | {"seconds": 9.0, "details": {"seconds": {"presolve": 0.5, "attack": 8.0}}},
]
TARGETS[1]["details"]["presolve"] = [{"layer": 1, "neurons": 500, "open": 120}]


def test_an_undecided_row_has_reasons() -> None:
    row = replace(ROW, status="timeout", seconds=10.5, key=replace(KEY, method="auto"))
    assert why_undecided(row, TARGETS, "0.25 px", 2 / 255) == [
        "2 of 3 adversarial classes are open. Hardest: class 2; its margin is between -0.333334 "
        "and 4.",
        "Unstable neurons: 120 of 500 in layer 1.",
        # The attack worked on two classes at once.
        "It took 10.50 s with a limit of 60 s: attack 8.00 s, sdp 2.00 s.",
        "The time limit was reached.",
        "The same input is certified at the smaller radius 0.25 px.",
        "What may help: more time (--timeout 240); integer pixels only (--grid 1px), if real "
        "inputs are not needed; a smaller radius.",
    ]


def test_advice_depends_on_the_question() -> None:
    unknown = replace(ROW, status="unknown", key=replace(KEY, method="lp", norm="l0"))
    assert why_undecided(unknown, [], "", 2 / 255) == [
        "No method returned an answer before the time limit.",
        "It took 0.10 s with a limit of 60 s.",
        "What may help: a complete method (--method auto); a smaller radius.",
    ]


def test_decided_rows_and_bounds_need_no_reason() -> None:
    assert why_undecided(ROW, TARGETS, "", None) == []
    bound = replace(ROW, status="unknown", key=replace(KEY, question="bound"))
    assert why_undecided(bound, TARGETS, "", None) == []


def test_broken_details_are_ignored() -> None:
    odd = [{"status": "timeout", "details": {"seconds": [], "presolve": [1]}, "lower": "x"}]
    row = replace(ROW, status="timeout")
    assert "no bound of its margin is known" in why_undecided(row, odd, "", None)[0]
    assert stage_seconds(odd, 1.0) == {"undecided": (0.0, 1)}
