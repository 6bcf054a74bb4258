"""The record of answers: nothing differs on the same code, and every change is found."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.record import __main__ as record
from benchmarks.record.answers import Question, ask
from benchmarks.record.questions import KINDS, questions


def call(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["record", *map(str, words)])
    return record.main()


def test_the_same_code_shows_no_difference_and_a_changed_record_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answers.jsonl"
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        # The command sets them; what was there before comes back after the test.
        monkeypatch.setenv(name, "")
    assert call(monkeypatch, "make", path, "--number", "6", "--seed", "3") == 0
    # The bounds of `auto` depend on which engine is the first, and that on the clock.
    timed = [word for field in ("lower", "upper", "out", "json") for word in ("--ignore", field)]
    assert call(monkeypatch, "compare", path, *timed) == 0
    assert "6 questions" in capsys.readouterr().out
    lines = path.read_text().splitlines()
    entry = json.loads(lines[1])
    entry["answers"][0]["code"] = 77
    path.write_text("\n".join([lines[0], json.dumps(entry), *lines[2:]]) + "\n")
    assert call(monkeypatch, "compare", path, *timed) == 1
    out = capsys.readouterr().out
    assert "code, " in out and "    77 -> " in out and "1 differ" in out
    assert call(monkeypatch, "compare", path, *timed, "--ignore", "code") == 0


def test_a_seed_makes_the_same_questions() -> None:
    first, second = list(questions(0, 40)), list(questions(0, 60))
    assert [vars(q) for q in first] == [vars(q) for q in second[:40]]
    for _, kind in KINDS:
        one, two = kind(np.random.default_rng(5)), kind(np.random.default_rng(5))
        assert vars(one) == vars(two)


def test_answers_have_no_times_and_no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    # The sign of a + b is +1 in the ball, where the scores are therefore 1 and -1.
    tree = {"W0": [[1, 1]], "b0": [0], "W1": [[1], [-1]], "b1": [0, 0]}
    point = io.BytesIO()
    np.save(point, np.array([0.5, 0.25]))
    files = {"net.json": json.dumps(tree).encode(), "x.npy": point.getvalue()}
    words = ["verify", "net.json", "--input", "x.npy", "--radius", "0.125", "--json", "answer.json"]
    robust, missing = ask(Question("verify", files, [words, ["info", "none.npz"]]))
    assert (robust["code"], robust["status"], robust["lower"]) == (0, "robust", 2.0)
    assert "robust in # s" in robust["out"] and "second" not in json.dumps(robust["json"])
    assert missing["code"] == 2 and missing["errors"] == "bnncert: none.npz: no such file"
    assert "/tmp" not in json.dumps([robust, missing])
