"""Composite certificates: a claim, and the ordinary certificates from which it follows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy.typing as npt

from bnncert.engine.verdict import Counterexample
from bnncert.kernel.container import Section, Writer, read_sections
from bnncert.model.formats.atomic import replacing
from bnncert.model.network import Network
from bnncert.problem import Problem, Ties
from bnncert.proofs.writing import region_section
from bnncert.regions import ImagePath, ImageUnion, InputSet


def claim_section(
    kind: str,
    region: InputSet | None,
    details: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Section:
    """Return a claim about a region, or about all inputs.

    Parameters
    ----------
    kind
        The kind of the claim, one of those in `bnncert.kernel.claims.kinds`.
    region
        The region, whose fields become the detail `region` and whose arrays those of the claim.
    details, arrays
        What else the claim has.
    """
    stated = Section("statement") if region is None else region_section(region)
    about = {**details, "region": None if region is None else stated.fields}
    return Section("claim", {"kind": kind, "details": about}, {**stated.arrays, **(arrays or {})})


def class_details(problem: Problem, network: Network, ties: Ties) -> dict[str, Any]:
    """Return the details of claims about a class against rivals."""
    rivals = [int(t.rival) for t in problem.targets if t.rival is not None]
    about = {"network": network.content_hash, "label": problem.label}
    return {**about, "rivals": rivals, "ties": ties}


def write_claim(
    path: str | os.PathLike[str], claim: Section, parts: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Write a claim and its parts, which are files of ordinary certificates, atomically.

    Parameters
    ----------
    path
        The file of the composite certificate.
    claim
        The section `claim`, with its kind and its details.
    parts
        The files in the order in which the check of the claim takes them.
    """
    with replacing(path) as file:
        writer = Writer(file)
        writer.add(claim)
        for part in parts:
            for section in read_sections(part):
                writer.add(section)
        writer.end()


# -- shapes of change around an image ---------------------------------------------------------


def write_path(
    path: str | os.PathLike[str],
    problem: Problem,
    region: ImagePath,
    network: Network,
    found: Counterexample | None,
) -> None:
    """Write the certificate of a verdict about a path, which the checker sweeps again.

    `found` is the counterexample, if there is one; `network` is that of the file.
    """
    more: dict[str, Any] = {"place": None, "target": None}
    if found is not None:
        names = [target.name for target in problem.targets]
        point = found.exact or tuple(map(Fraction, found.point.tolist()))
        more = {"place": str(region.place_of(point)), "target": names.index(found.target)}
    write_claim(path, _shape_claim("path", problem, network, region, found, more))


def union_claim(
    problem: Problem,
    union: ImageUnion,
    network: Network,
    found: Counterexample | None = None,
    place: int | None = None,
    parts: Sequence[int] = (),
) -> Section:
    """Return the claim about a union of boxes.

    Parameters
    ----------
    problem
        The question about one of the boxes.
    union, network
        The boxes, and the network as its file defines it.
    found, place
        The counterexample and the number of its box, whose certificate is the only part.
    parts
        The boxes that have a part, because the checker does not prove them by itself.
    """
    more = {"place": place, "parts": list(parts)}
    return _shape_claim("union", problem, network, union, found, more)


def _shape_claim(
    kind: str,
    problem: Problem,
    network: Network,
    region: ImagePath | ImageUnion,
    found: Counterexample | None,
    more: dict[str, Any],
) -> Section:
    fine = problem.targets[0].objectives[0].tie_is_fine
    details = class_details(problem, network, "robust" if fine else "violation")
    details |= {"verdict": "robust" if found is None else "not_robust", **more}
    return claim_section(kind, region, details)
