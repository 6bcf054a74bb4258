"""Explanations, weight faults and counts in a results file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bnncert.arrays import numbers_hash
from bnncert.errors import FormatError, InputError
from bnncert.results.rows import InputRecord, OtherAnswer, checked_answer, made_answer
from bnncert.results.store import ResultsFile, read_recorded

POINT = np.array([0.25, 1 / 3])


def explanation(**changes: object) -> OtherAnswer:
    made = made_answer(
        {"ties": "violation"},
        {"kept": [0], "minimal": True},
        **{"kind": "explain", "model_hash": "m", "input_name": "x.npy [0]", "label": 1},
        **{"input_hash": numbers_hash(POINT), "region": "data box", "labels": "own"},
        **{"status": "minimal", "summary": "1 of 2 inputs is kept", "seconds": 0.5},
    )
    return replace(made, finished_at="2026-01-01T00:00:00+00:00", **changes)


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    answers = [explanation(), explanation(kind="faults"), explanation(kind="count", label=0)]
    with ResultsFile(path) as results:
        results.add_inputs([InputRecord(numbers_hash(POINT), 1, (2,), POINT)])
        for answer in answers:
            results.replace_other(answer)
        assert results.rows() == []
    recorded = read_recorded(path)
    assert list(recorded.others) == answers
    assert [other.rowid for other in recorded.others] == [1, 2, 3]
    assert recorded.of_kind("faults") == [answers[1]]
    assert recorded.others[0].tree == {"kept": [0], "minimal": True}
    assert recorded.model_hashes == ["m"]
    found = recorded.inputs([numbers_hash(POINT), "unknown"])
    assert [r.point.tolist() for r in found.values()] == [POINT.tolist()]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        # Where the input was found and what the answer is does not matter.
        ({"input_name": "elsewhere.npy", "payload": "{}", "status": "sufficient"}, True),
        ({"labels": "given", "seconds": 9.0, "version": "9", "certificate": "c"}, True),
        ({"kind": "count"}, False),
        ({"model_hash": "n"}, False),
        ({"input_hash": "other"}, False),
        ({"label": 2}, False),
        ({"region": "within 0.1"}, False),
        ({"settings": "{}"}, False),
    ],
)
def test_the_key_states_the_question(change: dict[str, object], same: bool) -> None:
    assert (explanation(**change).key == explanation().key) is same


def test_a_repeated_question_replaces_the_older_answer(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "r.sqlite") as results:
        for answer in (explanation(), explanation(label=2), explanation(status="sufficient")):
            results.replace_other(answer)
        found = results.other_answers()
    assert [(one.label, one.status) for one in found] == [(2, "minimal"), (1, "sufficient")]


def test_a_file_that_is_open_for_reading_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    ResultsFile(path).close()
    with (
        ResultsFile(path, writable=False) as results,
        pytest.raises(InputError, match="cannot be read"),
    ):
        results.replace_other(explanation())


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("kind", "guess", "kind is 'guess'"),
        ("label", "seven", "label is not a whole number"),
        ("seconds", -1.0, "seconds is -1.0"),
        ("status", 5, "status is not text"),
        ("summary", b"\x00", "summary is not text"),
        ("payload", "[1, 2]", "payload: not a JSON object"),
        ("payload", "{", "payload: not a JSON object"),
        ("certificate", 1.5, "certificate is not text"),
        ("labels", "guessed", "labels is 'guessed'"),
    ],
)
def test_broken_answers_are_named(column: str, value: object, words: str) -> None:
    cells = asdict(explanation())
    assert checked_answer(dict(cells), "r.sqlite: answer 1") == explanation()
    with pytest.raises(FormatError, match=r"r\.sqlite: answer 1") as caught:
        checked_answer(cells | {column: value}, "r.sqlite: answer 1")
    assert words in str(caught.value)


def test_a_broken_answer_is_found_when_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with ResultsFile(path) as results:
        results.replace_other(explanation())
        results._connection.execute("UPDATE other_answers SET payload = '{'")
    with pytest.raises(FormatError, match=r"r\.sqlite: answer 1, payload: not a JSON object"):
        read_recorded(path)
