"""`bnncert bound`: every method and solver bounds the margin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Method
from bnncert.engine.methods.learning import is_ready
from tests.cli.diamond import DIAMOND, Run, assert_replays, read_json
from tests.in_process import CODE


@pytest.mark.parametrize("method", [m for m in REGISTRY.all() if m.available()])
def test_every_method_bounds_the_margin_it_promises_to(
    folder: Path, run: Run, method: type[Method]
) -> None:
    if method.name == "learning":
        # Its loops are compiled once for an installation, which may take longer than the limit.
        assert is_ready(Deadline(None))
    # Within 0.6 of (1, 0) all patterns but (-,-) occur: min margins -1 and -1.5.
    question = ("--input", "x.npy", "--radius", "0.6", "--method", method.name)
    answer = run("bound", "net.npz", *question, "--timeout", "5", "--json", "out.json")
    assert answer.code == CODE[read_json(folder / "out.json")["status"]]
    assert answer.out.splitlines()[0].endswith(f"method {method.name}; time limit 5 s")
    tree = read_json(folder / "out.json")
    assert tree["method"] == method.name
    for target, minimum in zip(tree["targets"], (-1.0, -1.5), strict=True):
        if "bound" in method.promises:
            assert target["lower"] <= minimum
        if "counterexample" in method.promises and target["upper"] is not None:
            assert target["upper"] >= minimum
        if method.name == "milp":
            assert target["lower"] == target["upper"] == minimum
    if "counterexample" in method.promises:
        rival = int(tree["counterexample"]["target"].removeprefix("class "))
        assert_replays(tree, DIAMOND, rival)


def test_soft_and_lattice_form_find_the_same_minimum(folder: Path, run: Run) -> None:
    bounds = []
    for form in ("lattice", "soft"):
        question = ("--input", "x.npy", "--radius", "0.6", "--method", "milp", "--form", form)
        assert run("bound", "net.npz", *question, "--json", "out.json").code == 1
        tree = read_json(folder / "out.json")
        bounds.append([(t["lower"], t["upper"]) for t in tree["targets"]])
    assert bounds == [[(-1.0, -1.0), (-1.5, -1.5)]] * 2


def test_explain_shows_presolve_and_stages(folder: Path, run: Run) -> None:
    question = ("bound", "net.npz", "--input", "x.npy", "--radius", "0.6")
    answer = run(*question, "--explain", "--json", "out.json")
    assert answer.code == 3
    for word in ("presolve", "variables", "rules", "stages", "structured", "iterations", "gap"):
        assert word in answer.out, word
    details = read_json(folder / "out.json")["targets"][0]["details"]
    first = details["presolve"][0]
    assert first["neurons"] == first["open"] + first["rules"].get("stable", 0)
    rounds = details["rounds"]
    assert rounds[0]["bound"] <= rounds[0]["primal"] + 1e-6
    assert rounds[0]["seconds"] >= 0
    answer = run(*question, "--explain", "--method", "elimination")
    for word in ("presolve", "elimination", "width", "components", "learned clauses"):
        assert word in answer.out, word
    other = run(*question, "--explain", "--method", "lp")
    assert other.code == 3
    for word in ("layers", "stages", "lower bounds"):
        assert f"\n{word} " in other.out, word


@pytest.mark.parametrize("solver", ["structured", "clarabel", "low-rank"])
def test_every_solver_of_the_reduced_problem_bounds_it(folder: Path, run: Run, solver: str) -> None:
    question = ("bound", "net.npz", "--input", "x.npy", "--radius", "0.6", "--solver", solver)
    assert run(*question, "--timeout", "5", "--json", "out.json").code == 3
    for target, minimum in zip(
        read_json(folder / "out.json")["targets"], (-1.0, -1.5), strict=True
    ):
        assert target["lower"] <= minimum


def test_json_of_an_open_bound_is_null_and_not_infinity(folder: Path, run: Run) -> None:
    question = ("--input", "x.npy", "--radius", "0.6", "--method", "interval", "--json", "-")
    answer = run("bound", "net.npz", *question)
    assert answer.code == 3
    tree = json.loads(answer.out, parse_constant=lambda text: pytest.fail(text))
    assert tree["upper"] is None
    assert tree["lower"] == -1.5
