"""Every answer has a certificate that is accepted, and no certificate of a wrong answer is."""

from __future__ import annotations

import copy
from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import bnncert
from bnncert.deadline import Deadline
from bnncert.kernel import check
from bnncert.problem import robustness
from bnncert.proofs.writing import write_proof
from tests.brute_force import TinyNetwork
from tests.kernel.claims import (
    accepted,
    answer,
    is_true,
    pack,
    random_network,
    robust_problem,
    unpack,
)
from tests.strategies import regions, tiny_networks

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=25, **QUIET)
@given(st.data(), st.sampled_from(["linf", "l1", "l2", "box", "polytope"]))
def test_every_answer_has_a_certificate(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    path = tmp_path / "answer.cert"
    tiny = data.draw(tiny_networks(exact_ties=data.draw(st.booleans())))
    network, region = tiny.build(), data.draw(regions(kind))
    label = data.draw(st.integers(0, network.classes - 1))
    ties = data.draw(st.sampled_from(["violation", "robust"]))
    problem = robustness(network, region, label, "all", ties)
    status = answer(path, problem, network)
    report = check(path, network)
    assert report.verdict == status and report.targets == network.classes - 1
    assert ("violates" in report.statement) == (status == "not_robust")
    sections = unpack(path)
    assert is_true(sections[0], tiny)
    # The opposite is not accepted.
    sections[0].fields["verdict"] = "robust" if status == "not_robust" else "not_robust"
    assert accepted(pack(path, sections), network) is None


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
def test_another_sign_of_zero(tmp_path: Path, sign_zero: str) -> None:
    """The file says plus, the question was asked with something else."""
    path = tmp_path / "zero.cert"
    tiny = random_network(np.random.default_rng(3), [2, 5, 4, 2])
    stated = tiny.build().with_sign_zero(sign_zero)
    region = bnncert.Ball("linf", np.zeros(2), 0.125)
    label = int(np.argmax(stated.evaluate(region.center)))
    problem = robustness(stated, region, label, "all", "robust")
    answer(path, problem, stated, sign_zero=sign_zero)
    check(path, tiny.build(), sign_zero=sign_zero)
    sections = unpack(path)
    sections[0].fields["sign_zero"] = None
    assert (accepted(pack(path, sections), tiny.build()) is not None) == (sign_zero == "plus")


def _forgeries(sections: list, tiny: TinyNetwork, other: TinyNetwork) -> list:
    """Return (sections, network) of other statements with this proof under them."""
    out = []

    def add(network: TinyNetwork, **fields: object) -> None:
        copied = copy.deepcopy(sections)
        copied[0].fields |= {"network": network.build().content_hash, **fields}
        out.append((copied, network))

    radius = Fraction(sections[0].fields["radius"])
    claim = sections[0].fields["property"]
    for factor in (1, 2, 4, 64):
        add(tiny, radius=str(radius * factor))
        add(other, radius=str(radius * factor))
    for label in range(3):
        rivals = [k for k in range(3) if k != label]
        add(tiny, property={**claim, "label": label, "rivals": rivals})
        add(other, property={**claim, "label": label, "rivals": rivals})
    for kind in ("linf", "l2", "l1"):
        add(tiny, region=kind, radius=str(2 * radius))
    add(TinyNetwork(tiny.weights, tiny.biases, "either"), sign_zero="either")
    for shift in (0.25, -0.5, 1.0):
        add(tiny)
        out[-1][0][0].arrays["center"] = sections[0].arrays["center"] + shift
        for name in ("clip_lo", "clip_hi"):
            if name in sections[0].arrays:
                out[-1][0][0].arrays[name] = sections[0].arrays[name] + shift
    return out


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_proof_of_something_else_is_rejected(tmp_path: Path, norm: str) -> None:
    path, wrong = tmp_path / "forged.cert", 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tiny = random_network(rng, [[2, 5, 3], [2, 5, 4, 3], [2, 4, 4, 3, 3]][seed % 3])
        center = rng.integers(-4, 5, 2) / 4
        region = bnncert.Ball(norm, center, 0.5, center - 0.25, center + 0.5)  # type: ignore[arg-type]
        problem = robust_problem(tiny, region)
        try:
            write_proof(path, problem, tiny.build(), deadline=Deadline(20))
        except bnncert.InputError:
            # Not robust: there is nothing to start from.
            continue
        other = TinyNetwork(tiny.weights, tuple(-b for b in tiny.biases), tiny.sign_zero)
        for sections, network in _forgeries(unpack(path), tiny, other):
            true = is_true(sections[0], network)
            wrong += not true
            if accepted(pack(path, sections), network.build()) is not None:
                assert true
    assert wrong > 10
