"""Two results files side by side: which rows belong together, and which contradict each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bnncert.report.diff import Comparison, Pair, compare_results
from bnncert.results.rows import InstanceKey, Row
from bnncert.results.store import Recorded

KEY = InstanceKey(
    model_hash="n" * 64,
    input_index=0,
    input_hash="i0",
    label=3,
    norm="linf",
    radius=0.5,
    clip="none",
    rivals="all",
    method="auto",
    timeout=60.0,
    ties="violation",
    sign_zero="plus",
    seed=0,
)


def row(status: str = "robust", **changes: object) -> Row:
    """Return a row; names of key fields change the key, others the row."""
    of_key = {k: v for k, v in changes.items() if hasattr(KEY, k)}
    others = {k: v for k, v in changes.items() if k not in of_key}
    made = Row(
        key=replace(KEY, **of_key),  # type: ignore[arg-type]
        predicted=3,
        status=status,  # type: ignore[arg-type]
        lower=None,
        upper=None,
        seconds=1.0,
        stage="",
        per_target="[]",
        counterexample=None,
        counterexample_json=None,
        version="0",
        finished_at="",
    )
    return replace(made, **others)  # type: ignore[arg-type]


def compare(before: list[Row], after: list[Row]) -> Comparison:
    a, b = (Recorded(Path(n), tuple(rows), {}) for n, rows in (("a", before), ("b", after)))
    return compare_results(a, b)


def matches(found: Comparison) -> list[tuple[str, str]]:
    return [(p.before.key.method, p.after.key.method) for p in found.pairs]


def test_rows_with_equal_settings_belong_together() -> None:
    two = [row(method="lp"), row(method="sdp")]
    found = compare(two, two[::-1])
    assert matches(found) == [("lp", "lp"), ("sdp", "sdp")]
    assert (found.missing, found.new, found.contradictions) == ((), (), ())


def test_then_rows_of_one_method_and_then_the_only_rows_of_a_question() -> None:
    found = compare([row(timeout=60.0)], [row(timeout=5.0), row(method="lp")])
    assert matches(found) == [("auto", "auto")]
    assert [r.key.method for r in found.new] == ["lp"]
    assert matches(compare([row(method="lp")], [row(method="sdp")])) == [("lp", "sdp")]


@pytest.mark.parametrize(
    "changes",
    [{"radius": 0.25}, {"input_hash": "i1"}, {"grid": "1.0,0.0"}, {"rivals": "1"}, {"label": 4}],
)
def test_other_questions_are_not_compared(changes: dict[str, object]) -> None:
    found = compare([row()], [row("not_robust", **changes)])
    assert found.pairs == () and found.contradictions == ()
    assert len(found.missing) == len(found.new) == 1


@pytest.mark.parametrize("other", ["not_robust", "misclassified"])
@pytest.mark.parametrize("swapped", [False, True])
def test_contradicting_answers(other: str, swapped: bool) -> None:
    files = ([row()], [row(other, method="bab", seed=3)])
    (found,) = compare(*(files[::-1] if swapped else files)).contradictions
    assert found.is_about_answers
    assert (found.proved_in, found.refuted_in) == ((1, 0) if swapped else (0, 1))
    assert (found.proved.status, found.refuted.status) == ("robust", other)


def test_a_contradiction_is_found_among_all_rows_of_a_question() -> None:
    """The contradicting rows are not the ones that are paired."""
    before = [row(method="lp", status="unknown"), row(method="bab")]
    after = [row(method="lp", status="not_robust"), row(method="bab")]
    (found,) = compare(before, after).contradictions
    assert (found.proved.key.method, found.refuted.key.method) == ("bab", "lp")


def test_contradicting_bounds() -> None:
    (found,) = compare(
        [row("unknown", lower=2.0)], [row("unknown", lower=-5.0, upper=1.0)]
    ).contradictions
    assert not found.is_about_answers
    assert (found.proved.lower, found.refuted.upper) == (2.0, 1.0)
    rounded = compare([row("unknown", lower=2.0)], [row("unknown", upper=2.0 - 1e-9)])
    assert rounded.contradictions == ()


def test_answers_come_before_bounds() -> None:
    before = [row("unknown", lower=2.0), row(input_hash="i1")]
    after = [row("unknown", upper=1.0), row("not_robust", input_hash="i1")]
    found = compare(before, after).contradictions
    assert [c.is_about_answers for c in found] == [True, False]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("robust", "robust", "same"),
        ("robust", "timeout", "lost"),
        ("unknown", "not_robust", "gained"),
        ("unknown", "timeout", "other"),
    ],
)
def test_changes_of_answers(before: str, after: str, change: str) -> None:
    assert Pair(row(before), row(after)).answer == change


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(1.0, 1.0 + 1e-9, "same"), (1.0, 2.0, "gained"), (1.0, None, "lost"), (None, -3.0, "gained")],
)
def test_changes_of_bounds(before: float | None, after: float | None, change: str) -> None:
    assert Pair(row(lower=before), row(lower=after)).bound == change


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(10.0, 11.0, "same"), (0.01, 0.09, "same"), (1.0, 3.0, "lost"), (3.0, 1.0, "gained")],
)
def test_changes_of_times(before: float, after: float, change: str) -> None:
    assert Pair(row(seconds=before), row(seconds=after)).time == change


def test_what_was_lost_comes_first() -> None:
    before = [row("unknown"), row("robust", input_hash="i1")]
    after = [row("robust"), row("timeout", input_hash="i1")]
    found = compare(before, after)
    assert [p.before.key.input_hash for p in found.changed(lambda p: p.answer)] == ["i1", "i0"]
