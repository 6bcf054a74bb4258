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
from bnncert.proofs.claims import claim_section
from bnncert.questions.explain.domain import Domain


def explanation_claim(
    problem: Problem,
    domain: Domain,
    free: BoolArray,
    witnesses: Mapping[int, Counterexample],
    ties: Ties,
) -> Section:
    """Return the first section of the certificate; `witnesses` are in ascending order."""
    image = domain.image
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
    details = {"label": problem.label, "ties": ties, "exact": exact}
    numbers = {"kept": np.flatnonzero(~free), "needed": list(witnesses), "targets": targets}
    numbers |= {"starts": starts, "changed": changed}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    arrays["values"] = np.array(values, dtype=np.float64)
    claim = claim_section("explanation", domain.everything, details, arrays)
    # On a grid, the radius of a ball includes the rounding of its own values: this is the part's.
    claim.fields["details"]["region"]["radius"] = str(Fraction(domain.region(free).radius))
    return claim
