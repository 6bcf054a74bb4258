"""Composite certificates: a claim, and the ordinary certificates from which it follows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods import Context
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import InputError
from bnncert.kernel.claims.claim import Claim, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError, Writer, read_sections
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import replacing
from bnncert.model.network import Network
from bnncert.problem import Problem, Ties
from bnncert.problem.problem import Arithmetic
from bnncert.proofs.writing import (
    CertificateError,
    region_section,
    write_counterexample,
    write_proof,
)
from bnncert.regions import Ball, Box, Grid, ImagePath, ImageUnion, InputSet, Polytope, Region

ClaimT = TypeVar("ClaimT", bound=Claim)


def claim_section(
    kind: str,
    region: InputSet | None,
    details: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Section:
    """State a claim, with its region as an ordinary statement has it; None for all inputs.

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


def read_claim(kind: type[ClaimT], section: Section, *networks: Network) -> ClaimT:
    """Return a claim as the checker reads it; raise InputError if it is none."""
    try:
        return kind(section, Subject(*networks))
    except (RejectedError, UnreadableError) as error:
        raise InputError(f"the question cannot be answered: {error}") from error


def stated_region(section: Section) -> Region:
    """Return the region of a claim's part, for the engine: a box, a polytope or a ball."""
    fields, arrays = section.fields, section.arrays
    grid = Grid(arrays["grid_step"], arrays["grid_origin"]) if "grid" in fields else None
    if fields["region"] == "box":
        return Box(arrays["lo"], arrays["hi"], grid)
    if fields["region"] == "polytope":
        matrix = arrays["matrix"].reshape(fields["inequalities"], -1)
        return Polytope(matrix, arrays["right"], arrays["lo"], arrays["hi"])
    low, high = arrays.get("clip_lo"), arrays.get("clip_hi")
    radius = float(Fraction(fields["radius"]))
    return Ball(fields["region"], arrays["center"], radius, low, high, grid)


def class_details(problem: Problem, network: Network, ties: Ties) -> dict[str, Any]:
    """Name the network, the class, its rivals and what a tie means."""
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


def write_verdict(
    path: Path,
    problem: Problem,
    stated: Network,
    result: Result,
    context: Context,
    *,
    arithmetic: Arithmetic = "real",
    sign_zero: SignZero | None = None,
) -> Result:
    """Write the certificate of a verdict, if it is one; if that fails, name the trusted solvers.

    `stated` is the network as its file defines it.
    """
    found = result.counterexample
    if found is None and result.status != "robust":
        return result
    try:
        if isinstance(problem.inputs, ImagePath):
            write_path(path, problem, problem.inputs, stated, found)
        elif result.status == "robust":
            write_proof(
                path,
                problem,
                stated,
                arithmetic=arithmetic,
                sign_zero=sign_zero,
                record=context.record,
                deadline=context.deadline,
                progress=context.progress,
            )
        elif found is not None:
            how: dict[str, Any] = {"arithmetic": arithmetic, "sign_zero": sign_zero}
            write_counterexample(path, problem, stated, found, **how)
    except (CertificateError, OutOfTimeError) as error:
        trusted = None
        if result.status == "robust":
            solvers = dict.fromkeys(t.trusted for t in result.targets if t.trusted is not None)
            trusted = ", ".join(solvers) or "bnncert"
        return replace(result, notes=(*result.notes, str(error)), trusted=trusted)
    return replace(result, certificate=str(path))


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
    """State a union as one claim: the checker splits most boxes itself, without a part.

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
