"""The prover keeps certificates of proofs only, because a claim follows from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import bnncert
from bnncert.engine.answer import Interrupted
from bnncert.problem import output_polytope
from bnncert.proofs import claims
from bnncert.questions.prover import Effort, Prover


def test_a_counterexample_is_no_proof_of_its_part(tmp_path: Path) -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    false, true = (output_polytope(net, ball, [[1, 0]], [limit]) for limit in (1, 2))
    with Prover(Effort(certificate=tmp_path / "c.bnncert"), [net]).opened() as prover:
        assert prover.decide(false, name="part").status == "not_robust"
        assert not prover.has("part")
        proved = prover.decide(true, name="part")
        assert proved.status == "robust"
        assert proved.certificate is not None
        assert prover.has("part")
        assert prover.decide(false, name="part").status == "not_robust"
        assert prover.has("part"), "a later counterexample does not replace the proof"


def test_ctrl_c_while_a_certificate_is_written_keeps_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    ball = bnncert.Ball("linf", [0.5, 0], 0.3)
    expected = bnncert.explain(net, ball, 0, timeout=60)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(claims, "write_claim", interrupted)
    with pytest.raises(Interrupted) as stop:
        bnncert.explain(net, ball, 0, timeout=60, certificate=tmp_path / "c.bnncert")
    assert stop.value.answer.status == expected.status
    assert stop.value.answer.summary == expected.summary
    assert not (tmp_path / "c.bnncert").exists()


def test_an_explanation_of_a_box_says_what_it_expects() -> None:
    net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    with pytest.raises(
        bnncert.BnncertError, match="expected a point, or rows of points, not a Box"
    ):
        bnncert.explain(net, bnncert.Box([0.25, -0.75], [0.75, 0.75]), 0)  # type: ignore[arg-type]
