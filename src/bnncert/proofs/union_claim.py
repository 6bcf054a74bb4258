"""The certificate of a verdict about a union of boxes: a claim, and parts for some of the boxes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from bnncert.engine.verdict import Counterexample
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.composite import write_claim
from bnncert.proofs.path_claim import claim_section
from bnncert.proofs.writing import write_counterexample
from bnncert.regions import ImageUnion


def write_union(
    path: str | os.PathLike[str],
    problem: Problem,
    union: ImageUnion,
    network: Network,
    parts: Mapping[int, Path],
) -> None:
    """Write the certificate of a robust verdict.

    Parameters
    ----------
    problem
        The question about one of the boxes.
    union, network
        The boxes, and the network as its file defines it.
    parts
        The certificates of boxes that the checker does not prove by itself.
    """
    more = _more(union, {"parts": sorted(parts), "place": None})
    section = claim_section("union", problem, network, union, more, None)
    write_claim(path, section, [parts[k] for k in sorted(parts)])


def write_union_counterexample(
    path: str | os.PathLike[str],
    problem: Problem,
    union: ImageUnion,
    network: Network,
    number: int,
    found: Counterexample,
    folder: Path,
    sign_zero: SignZero | None,
) -> None:
    """Write the certificate of a counterexample in one box; `folder` is for its part."""
    part = folder / "point.bnncert"
    write_counterexample(part, problem, network, found, arithmetic="real", sign_zero=sign_zero)
    more = _more(union, {"parts": [], "place": number})
    write_claim(path, claim_section("union", problem, network, union, more, found), [part])


def _more(union: ImageUnion, listed: dict[str, object]) -> dict[str, object]:
    value = None if union.value is None else str(Fraction(union.value))
    return {"value": value, **listed}
