"""Composite certificates: a claim, and the ordinary certificates from which it follows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    """State a claim of one of the kinds in `bnncert.kernel.claims.kinds`.

    The region (None: all inputs) is stated as in an ordinary statement: its fields become the
    detail `region`, and its arrays those of the claim.
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
    """Write a claim and its parts atomically.

    The parts are files of ordinary certificates, in the order in which the check takes them.
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
    write_claim(path, shape_claim("path", problem, network, region, found, more))


def shape_claim(
    kind: str,
    problem: Problem,
    network: Network,
    region: ImagePath | ImageUnion,
    found: Counterexample | None,
    more: dict[str, Any],
) -> Section:
    """State a path or a union, of which the checker proves most without a part.

    `problem` is about the path, or about one box of the union; `network` is that of the file.
    `more` are the details of this kind of claim, as docs/certificates.md has them.
    """
    fine = problem.targets[0].objectives[0].tie_is_fine
    details = class_details(problem, network, "robust" if fine else "violation")
    details |= {"verdict": "robust" if found is None else "not_robust", **more}
    return claim_section(kind, region, details)
