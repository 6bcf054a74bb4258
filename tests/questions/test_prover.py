"""The prover keeps certificates of proofs only, because a claim follows from nothing else."""

from __future__ import annotations

from pathlib import Path

import bnncert
from bnncert.problem import output_polytope
from bnncert.questions.prover import Effort, Prover


def test_a_counterexample_is_no_proof_of_its_part(tmp_path: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    false, true = (output_polytope(net, ball, [[1, 0]], [limit]) for limit in (1, 2))
    with Prover(Effort(certificate=tmp_path / "c.bnncert"), [net]) as prover:
        assert prover.decide(false, name="part").status == "not_robust"
        assert not prover.has("part")
        proved = prover.decide(true, name="part")
        assert proved.status == "robust"
        assert proved.certificate is not None
        assert prover.has("part")
        assert prover.decide(false, name="part").status == "not_robust"
        assert prover.has("part"), "a later counterexample does not replace the proof"
