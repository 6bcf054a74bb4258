"""The help: topics of commands and options, and examples that work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bnncert.cli import demo
from bnncert.cli.catalogue import ENTRIES, OTHER, TOPICS, Entry, topic_of
from bnncert.cli.program import _imported
from bnncert.cli.supports import QUESTIONS
from tests.cli.diamond import Run
from tests.console_blocks import BLOCK, pages, steps

SHOWN = [entry for entry in ENTRIES if not entry.hidden]


def test_every_option_has_one_topic() -> None:
    known = [option for options in TOPICS.values() for option in options]
    assert len(known) == len(set(known))
    found = {
        option
        for entry in ENTRIES
        for parameter in _imported(entry.name.replace("_", "-")).params
        if parameter.param_type_name == "option"
        for option in parameter.opts
        if topic_of(parameter.opts) == OTHER
    }
    assert found == {"--" + question.replace("_", "-") for question in QUESTIONS}


def test_commands_are_listed_by_topic(run: Run) -> None:
    lines = run("--help").out.splitlines()
    places = [lines.index(f"{topic}:") for topic in dict.fromkeys(e.topic for e in SHOWN)]
    assert places == sorted(places) and len(places) >= 4
    for entry in SHOWN:
        assert any(line.startswith(f"  {entry.name} ") for line in lines)


@pytest.mark.parametrize("entry", SHOWN, ids=lambda entry: entry.name)
def test_the_help_of_a_command_ends_with_its_example(entry: Entry, run: Run) -> None:
    answer = run(entry.name, "--help")
    assert answer.code == 0
    assert answer.out.endswith(f"\nExample:\n  {entry.example}\n")


def test_options_are_listed_by_topic(run: Run) -> None:
    text = run("verify", "--help").out
    places = [text.index(f"\n{topic}:\n") for topic in TOPICS if topic != "Training"]
    assert places == sorted(places)
    assert text.index("\nRegion:\n") < text.index("--radius <") < text.index("\nMethod:\n")
    assert text.index("\nOutput:\n") < text.index("--certificate <")


def test_the_examples_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """All but training, which needs PyTorch; each in the folder that those before have left.

    What a page of the documentation shows is run for that page.
    """
    blocks = [block for page in pages() for block in BLOCK.findall(page.read_text("utf-8"))]
    shown = [step.words for block in blocks for step in steps(block)]
    monkeypatch.chdir(tmp_path)
    # Nearer points with another class are looked for until their time is over.
    monkeypatch.setattr(demo, "ATTACK_DELTAS", (16.0,))
    # The example of `convert` writes this network, and that of `vnncomp` needs an answer at once.
    run("convert", "demo:sparse", "network.onnx")
    Path("query.vnnlib").write_text("(declare-const X_0 Real)\n(declare-const Y_0 Real)\n")
    Path("instances.csv").write_text("network.onnx,query.vnnlib,5\n")
    for entry in SHOWN:
        words = shlex.split(entry.example)
        assert words[:2] == ["bnncert", entry.name]
        if entry.name == "train":
            # Only the options are read.
            assert run(*words[1:], "--help").code == 0
            continue
        if any(step[: len(words)] == words for step in shown):
            continue
        # The time limit of the example of `explain` is short, and here even shorter.
        answer = run(*words[1:], *("--timeout", "1") * (entry.name == "explain"))
        if entry.name == "vnncomp":
            assert "1 instances in answers" in answer.out
            continue
        assert answer.code == 0 or (answer.code == 3 and entry.name == "explain"), entry.name
        assert answer.err == "", entry.name
    assert Path("proof.bnncert").exists() and Path("report.html").exists()


def test_the_options_are_few() -> None:
    """The flags of `supports` are those of the standard, and are not counted."""
    names = [entry.name.replace("_", "-") for entry in ENTRIES if entry.name != "supports"]
    parameters = [p for name in names for p in _imported(name).params]
    assert len({p.opts[-1] for p in parameters if p.param_type_name == "option"}) <= 75
