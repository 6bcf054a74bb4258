"""The certificate of a verdict about a path of images: a claim that the checker sweeps again."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from bnncert.engine.verdict import Counterexample
from bnncert.kernel.container import Section
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.composite import write_claim
from bnncert.regions import Contrast, ImagePath, ImageUnion


def claim_section(
    kind: str,
    problem: Problem,
    network: Network,
    region: ImagePath | ImageUnion,
    more: dict[str, object],
    found: Counterexample | None,
) -> Section:
    """Return the claim about a shape of change around an image, as its file defines the network."""
    arrays: dict[str, npt.NDArray[np.float64]] = {"image": region.middle}
    if region.clip_lo is not None:
        arrays["clip_lo"] = region.clip_lo
    if region.clip_hi is not None:
        arrays["clip_hi"] = region.clip_hi
    fine = problem.targets[0].objectives[0].tie_is_fine
    details = {
        "network": network.content_hash,
        "verdict": "robust" if found is None else "not_robust",
        "norm": region.norm,
        "radius": str(Fraction(region.stated_radius)),
        "label": problem.label,
        "rivals": [target.rival for target in problem.targets],
        "ties": "robust" if fine else "violation",
    }
    return Section("claim", {"kind": kind, "details": {**details, **more}}, arrays)


def write_path(
    path: str | os.PathLike[str],
    problem: Problem,
    network: Network,
    found: Counterexample | None,
) -> None:
    """Write the certificate of a verdict about a path; `found` is the counterexample, if any."""
    region = problem.region
    assert isinstance(region, ImagePath)
    more: dict[str, object] = {"place": None, "target": None}
    if found is not None:
        names = [target.name for target in problem.targets]
        more = {"place": str(_place(region, found)), "target": names.index(found.target)}
    section = claim_section("path", problem, network, region, more, found)
    if isinstance(region, Contrast):
        section.arrays["pivot"] = region.pivot
    write_claim(path, section)


def _place(path: ImagePath, found: Counterexample) -> Fraction:
    """Return the t of a counterexample on the path."""
    point = found.exact or tuple(map(Fraction, found.point.tolist()))
    return path.place_of(point)
