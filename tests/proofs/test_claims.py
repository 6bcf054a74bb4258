"""A verdict whose proof is not found."""

from __future__ import annotations

from pathlib import Path

import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.methods import Context
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Result, TargetResult
from bnncert.problem import robustness
from bnncert.proofs.claims import write_verdict
from bnncert.proofs.proof_builder import ProofBuilder
from tests.cli.diamond import DIAMOND


@pytest.mark.parametrize(
    ("stage", "solver", "trusted"),
    [("milp", "highs", "highs"), ("minp", "gurobi", "gurobi"), ("sdp", None, "bnncert")],
)
def test_a_verdict_without_a_proof_names_whom_it_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, solver: str | None, trusted: str
) -> None:
    network = DIAMOND.build()
    problem = robustness(network, bnncert.Ball("linf", [1.0, 0.0], 0.4), 0)
    context = Context(bnncert.Options(), Deadline(None), Replayer(problem))
    answers = tuple(
        TargetResult(t.name, "robust", stage=stage, trusted=solver) for t in problem.targets
    )
    verdict = Result("robust", answers, 0.0, stage)
    monkeypatch.setattr(ProofBuilder, "prove", lambda *arguments: None)
    proof = tmp_path / "proof.bnncert"
    found = write_verdict(proof, problem, network, verdict, context)
    assert (found.status, found.certificate, found.trusted) == ("robust", None, trusted)
    assert list(tmp_path.iterdir()) == []
