"""The claim of an explanation's certificate: the kept inputs, their domain and the witnesses.

A witness is stored by the inputs in which it differs from the image: `starts` divides `changed` and
`values` into the parts of the needed inputs.  Values that are no floats are fields of `exact`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from bnncert.arrays import BoolArray
from bnncert.engine.verdict import Counterexample
from bnncert.kernel.container import Section
from bnncert.problem import Problem, Ties
from bnncert.questions.explain.domain import Domain


def explanation_claim(
    problem: Problem,
    domain: Domain,
    free: BoolArray,
    witnesses: Mapping[int, Counterexample],
    ties: Ties,
) -> Section:
    """Return the first section of the certificate; `witnesses` are in ascending order."""
    image, region = domain.image, domain.region(free)
    starts, targets = [0], []
    changed: list[int] = []
    values: list[float] = []
    exact: dict[str, str] = {}
    names = [target.name for target in problem.targets]
    for witness in witnesses.values():
        point = witness.point
        places = [
            i
            for i in range(point.size)
            if (point[i] if witness.exact is None else witness.exact[i]) != image[i]
        ]
        if witness.exact is not None:
            exact |= {str(len(changed) + k): str(witness.exact[i]) for k, i in enumerate(places)}
        changed += places
        values += point[places].tolist()
        starts.append(len(changed))
        targets.append(names.index(witness.target))
    section = Section("claim", {"kind": "explanation"})
    section.fields["details"] = {
        "label": problem.label,
        "ties": ties,
        "radius": str(Fraction(region.radius)),
        "grid": None if region.values is None else region.values.dtype.name,
        "exact": exact,
    }
    section.arrays = {
        "image": image,
        "domain_lo": domain.lo,
        "domain_hi": domain.hi,
        "kept": np.flatnonzero(~free),
        "needed": np.array(list(witnesses), dtype=np.int64),
        "targets": np.array(targets, dtype=np.int64),
        "starts": np.array(starts, dtype=np.int64),
        "changed": np.array(changed, dtype=np.int64),
        "values": np.array(values, dtype=np.float64),
    }
    if region.values is not None:
        steps = {"grid_step": region.values.step, "grid_origin": region.values.origin}
        section.arrays |= steps
    return section
