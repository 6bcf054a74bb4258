"""Every command that reads a network or an input takes the names of the bundled ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bnncert.model.loading import load_demo_network
from tests.cli.diamond import Run

SMALL = ("--radius", "0.1px", "--method", "interval")


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "demo:sparse", "demo:0", *SMALL),
        ("verify", "demo:dense", "--input", "demo", "--index", "0", *SMALL),
        ("bound", "demo:sparse", "demo:0", *SMALL),
        ("radius", "demo:dense", "demo:0", "--method", "interval", "--max", "0.001"),
        ("radius", "demo:dense", "demo:0", "--exact", "--norm", "l0", "--max", "1", *SMALL[2:]),
        ("run", "demo:sparse", "--data", "demo:7", *SMALL, "--out", "r.sqlite"),
        ("run", "demo:dense", "--data", "demo", "--count", "2", *SMALL, "--out", "r.sqlite"),
        ("info", "demo:dense"),
        ("convert", "demo:sparse", "copy.npz"),
    ],
    ids=lambda words: " ".join(words[:4]),
)
def test_commands(words: tuple[str, ...], run: Run) -> None:
    answer = run(*words)
    # Interval bounds leave the number of pixels open.
    assert (answer.code, answer.err) == (3 if "--exact" in words else 0, "")


def test_converted_and_checked(run: Run) -> None:
    assert load_demo_network("dense").content_hash in run("convert", "demo:dense", "c.npz").out
    asked = ("--radius", "0.1px", "--rivals", "3", "--certificate", "p.bnncert")
    assert run("verify", "demo:sparse", "demo:0", *asked).code == 0
    assert run("check", "p.bnncert", "--model", "demo:sparse").code == 0
    assert run("check", "p.bnncert", "--model", "demo:dense").code == 1


@pytest.mark.parametrize(("data", "count"), [("demo:3", 1), ("{file: demo, count: 2}", 2)])
def test_experiment(data: str, count: int, run: Run) -> None:
    Path("plan.yaml").write_text(
        f"networks: [{{name: n, file: demo:sparse}}]\ndata: {data}\nradii: [0.1px]\n"
        "methods: [interval]\n"
    )
    answer = run("experiment", "plan.yaml", "--dry-run")
    assert (answer.code, answer.err) == (0, "")
    assert f"\n{count} instances, 0 in plan.sqlite already" in answer.out
    changed = ("--network", "n=demo:dense", "--data", "demo:5")
    answer = run("experiment", "plan.yaml", "--processes", "0", *changed)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("1 of 1 instances in plan.sqlite\n")


def test_files_that_begin_with_demo(run: Run) -> None:
    run("convert", "demo:sparse", "demo_net.npz")
    Path("plan.yaml").write_text(
        "networks: [{name: n, file: demo_net.npz}]\ndata: demo:3\nradii: [0.1px]\n"
        "methods: [interval]\n"
    )
    assert run("experiment", "plan.yaml", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("info", "demo:large"),
            "demo:large: expected demo:sparse, demo:dense, demo:certified, or a file",
        ),
        (("convert", "demo:large", "x.npz"), "demo:large: expected demo:sparse, demo:dense"),
        (("verify", "demo:sparse", "demo:100", *SMALL), "bundled images are demo:0 to demo:99"),
        (("bound", "demo:sparse", "demo:x", *SMALL), "demo:x: expected demo:INDEX"),
        (
            ("run", "demo:sparse", "--data", "demo:1", "--index", "2", *SMALL, "--out", "r.sqlite"),
            "demo:1 is one point; leave out --index and --count",
        ),
    ],
)
def test_names_of_nothing(words: tuple[str, ...], message: str, run: Run) -> None:
    answer = run(*words)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert message in answer.err


@pytest.mark.parametrize("command", ["verify", "bound"])
def test_several_targets(command: str, run: Run) -> None:
    answer = run(command, "demo:sparse", "demo:0", *SMALL, "--rivals", "3,1", "--json", "a.json")
    assert (answer.code, answer.err) == (0, "")
    targets = json.loads(Path("a.json").read_text())["targets"]
    assert [t["rival"] for t in targets] == [1, 3]


def test_several_targets_in_searches_and_runs(run: Run) -> None:
    two = ("--rivals", "1,2", "--method", "interval")
    assert run("radius", "demo:sparse", "demo:0", *two, "--max", "0.001").code == 0
    exact = ("radius", "demo:sparse", "demo:0", *two, "--exact", "--norm", "l0", "--max", "1")
    assert run(*exact, "--json", "a.json").code == 3
    assert run(*exact, "--resume", "a.json").code == 3
    asked = ("--data", "demo", "--count", "3", "--radius", "0.1px", "--out", "r.sqlite")
    answer = run("run", "demo:sparse", *asked, *two, "--timeout", "none")
    # Two of the first three images have these classes.
    assert "note: 2 input(s) of class 1 or 2, the rival itself, left out" in answer.out
    Path("plan.yaml").write_text(
        "networks: [{name: n, file: demo:sparse}]\ndata: {file: demo, count: 3}\nradii: [0.1px]\n"
        "methods: [interval]\nrivals: [2, 1]\n"
    )
    again = run("experiment", "plan.yaml", "--dry-run", "--out", "r.sqlite")
    assert "1 instances, 1 in r.sqlite already" in again.out
    Path("plan.yaml").write_text(Path("plan.yaml").read_text().replace("[2, 1]", "[2, 2]"))
    wrong = run("experiment", "plan.yaml", "--dry-run")
    assert wrong.code == 2 and "plan.yaml:5: rivals name class 2 twice" in wrong.err
    page = run("report", "r.sqlite", "-o", "r.html")
    assert page.code == 0 and "Classes 1, 2 only" in Path("r.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,7", "rival 7 is the label itself"),
        ("1,10", "rival is 10; the network has classes 0 to 9"),
        ("1,1", "--rivals is '1,1': rivals name class 1 twice"),
        ("1,", "--rivals is '1,'; expected all, runner-up, or classes as in 3 or 1,2"),
        ("1,all", "--rivals is '1,all'; expected all"),
    ],
)
def test_wrong_targets(text: str, message: str, run: Run) -> None:
    answer = run("verify", "demo:sparse", "demo:0", *SMALL, "--rivals", text)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert message in answer.err


def test_a_certificate_of_several_targets_states_them(run: Run) -> None:
    asked = ("--radius", "0.1px", "--rivals", "1,2", "--certificate", "p.bnncert")
    assert run("verify", "demo:sparse", "demo:0", *asked).code == 0
    answer = run("check", "p.bnncert", "--model", "demo:sparse")
    assert answer.code == 0 and "all other classes" not in answer.out
    assert "class 7 scores more than classes 1, 2" in answer.out
