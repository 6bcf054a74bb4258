"""One valid certificate of each kind, made once."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.kernel import check
from bnncert.kernel.container import Section
from bnncert.problem import Problem, Target, robustness, score_objective
from bnncert.proofs.writing import write_proof
from tests.brute_force import TinyNetwork
from tests.kernel.claims import SEEDS, answer, example, pack, robust_problem, unpack
from tests.kernel.eliminations import eliminated
from tests.kernel.input_cuts import certified, crossing
from tests.kernel.pattern_trees import by_hand, one_by_one, robust_tree
from tests.kernel.refutations import refuted


@dataclass(frozen=True, eq=False)
class Valid:
    """A valid certificate in pieces, and what it is about."""

    tiny: TinyNetwork
    network: bnncert.Network
    sections: list[Section]


def _targets(tiny: TinyNetwork, region: bnncert.Region) -> Problem:
    """The same question in terms of scores: two objectives, of which one is positive."""
    plain = robust_problem(tiny, region)
    network = plain.network
    targets = []
    for k, target in enumerate(plain.targets):
        assert target.rival is not None and plain.label is not None
        lost = score_objective(network, {target.rival: 1}, 0, tie_is_fine=True, name="lost")
        margin = score_objective(
            network, {plain.label: 1, target.rival: -1}, 0, tie_is_fine=False, name="margin"
        )
        targets.append(Target(f"t{k}", (margin, lost)))
    return Problem(network, region, tuple(targets))


def _with_clauses(sections: list[Section]) -> list[Section]:
    """Move the clauses that a tree learns in front of all trees."""
    nodes = next(s for s in sections if s.name == "nodes" and s.arrays["since"].size)
    names = ("sizes_of_clauses", "neurons", "signs", "theta")
    front = Section("clauses", {"layer": 0}, {k: nodes.arrays[k] for k in names})
    for k in (*names, "since"):
        nodes.arrays[k] = nodes.arrays[k][:0]
    place = next(k for k, s in enumerate(sections) if s.name == "target")
    return [*sections[:place], front, *sections[place:]]


@pytest.fixture(scope="session")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Valid]:
    """Return certificates by name; what one process of a run has made the others read."""
    own = tmp_path_factory.getbasetemp() / "certificates.pickle"
    shared = own.parent.parent / own.name if "PYTEST_XDIST_WORKER" in os.environ else own
    if not shared.exists():
        made = _valid(tmp_path_factory.mktemp("certificates") / "one.cert")
        own.write_bytes(pickle.dumps(made))
        own.replace(shared)
    found: dict[str, Valid] = pickle.loads(shared.read_bytes())
    return found


def _valid(path: Path) -> dict[str, Valid]:
    made: dict[str, Valid] = {}

    def add(name: str, tiny: TinyNetwork, problem: Problem) -> None:
        write_proof(path, problem, problem.network, deadline=Deadline(60))
        made[name] = Valid(tiny, problem.network, unpack(path))

    for kind in SEEDS:
        tiny, region = example(kind)
        add(kind, tiny, robust_problem(tiny, region))
    tiny, region = example("deep", 313)
    add("gates", tiny, robust_problem(tiny, region))
    tiny, region = example("linf")
    add("targets", tiny, _targets(tiny, region))
    add("clauses", tiny, robust_problem(tiny, region))
    made["clauses"] = Valid(tiny, tiny.build(), _with_clauses(made["clauses"].sections))
    label = int(np.argmin(tiny.build().evaluate(region.center)))
    wrong = robustness(tiny.build(), region, label, "all", "violation")
    assert answer(path, wrong, wrong.network) == "not_robust"
    made["point"] = Valid(tiny, wrong.network, unpack(path))
    for name, norm in (("patterns", "linf"), ("budget", "l1")):
        tiny, problem, tree = robust_tree(norm)
        sections = by_hand(problem, problem.network, tree)
        made[name] = Valid(tiny, problem.network, sections)
        sections = one_by_one(problem, problem.network, tree)
        made[f"enumerated {name}"] = Valid(tiny, problem.network, sections)
    tiny, sections = eliminated(path)
    made["elimination"] = Valid(tiny, tiny.build(), sections)
    tiny, sections = refuted(path)
    made["refutation"] = Valid(tiny, tiny.build(), sections)
    for name, seed, kind in (("input cuts", 247, "linf"), ("input cuts l2", 149, "l2")):
        tiny, region = crossing(seed, kind)
        problem, sections = certified(path, tiny, region)
        assert "cuts" in [s.name for s in sections]
        made[name] = Valid(tiny, problem.network, sections)
    for one in made.values():
        assert check(pack(path, one.sections), one.network).targets > 0
    assert any(s.arrays["kind"].size > 3 for s in made["linf"].sections if s.name == "nodes")
    for kind in ("l1 grid", "polytope grid", "l0 grid", "l0"):
        assert any(s.name == "branched" for s in made[kind].sections)
    assert any(s.arrays["gates"].size for s in made["gates"].sections if s.name == "nodes")
    return made
