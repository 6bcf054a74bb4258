"""A proof uses what the search has recorded, and believes none of it unchecked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

import bnncert
from bnncert.engine.search.trace import Trace, TracedLeaf
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.proofs import writing
from bnncert.proofs.leaf_proof import LeafProblem
from bnncert.proofs.proof_builder import ProofBuilder


def demo_question(image: int, pixels: float) -> tuple[bnncert.Network, bnncert.Region, int]:
    network, data = load_demo_network("dense"), load_demo_images()
    region = bnncert.Ball("linf", data.point(image), pixels / 127.5, -1.0, 1.0)
    return network, region, int(data.labels[image])


def _again(*arguments: object, **options: object) -> NoReturn:
    raise AssertionError("the search has done this already")


@pytest.mark.parametrize(("image", "method", "leaves"), [(1, "bab", 1), (9, "bab", 2)])
def test_a_certificate_solves_nothing_again(
    image: int, method: str, leaves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeafProblem, "solve", _again)
    monkeypatch.setattr(writing, "presolve", _again)
    question = demo_question(image, 0.5 if image == 1 else 0.25)
    path = tmp_path / "proof.bnncert"
    result = bnncert.verify(*question, rivals="runner-up", method=method, certificate=path)
    assert result.certificate is not None, result.notes
    # The checker raises an error if it rejects the file.
    assert check(path, question[0]).leaves >= leaves


def test_wrong_multipliers_of_the_search_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(leaf: TracedLeaf) -> TracedLeaf:
        found = leaf.multipliers
        if found is None:
            return leaf
        wrong = replace(found, tables=-3 * found.tables, kappa=found.kappa + 10)
        return replace(leaf, multipliers=wrong)

    prove = ProofBuilder.prove
    solved = []
    solve = LeafProblem.solve

    def watch(leaf: LeafProblem, *arguments: object) -> object:
        solved.append(leaf)
        return solve(leaf, *arguments)  # type: ignore[arg-type]

    def misled(builder: ProofBuilder, number: int, functions: object, trace: Trace, *rest: object):  # type: ignore[no-untyped-def]
        wrong = replace(trace, leaves=tuple(map(spoiled, trace.leaves)))
        return prove(builder, number, functions, wrong, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ProofBuilder, "prove", misled)
    monkeypatch.setattr(LeafProblem, "solve", watch)
    question = demo_question(9, 0.25)
    path = tmp_path / "proof.bnncert"
    result = bnncert.verify(*question, rivals="runner-up", method="bab", certificate=path)
    assert result.certificate is not None, result.notes
    assert solved
    assert check(path, question[0]).leaves >= 2
