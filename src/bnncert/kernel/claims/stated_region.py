"""The region of a claim: its fields are in `details`, its arrays in the claim itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bnncert.kernel.budget import timed
from bnncert.kernel.container import MOST_JSON, RejectedError, Section, UnreadableError
from bnncert.kernel.rules.disagreement import Condition
from bnncert.kernel.space import REGION_FIELDS

#: A condition in JSON has at least its names: "scores", "constant" and "tie_is_fine".
LEAST_JSON = 40


def statement_on(section: Section, region: Any, verdict: str, property_: dict[str, Any]) -> Section:
    """Return the statement that a part has to make about the region of a claim.

    Parameters
    ----------
    section
        The claim, whose arrays are those of its region.
    region
        The fields of the region, from the details of the claim.
    verdict, property_
        What the part has to prove.
    """
    if not isinstance(region, dict) or not region.keys() <= {"region", *REGION_FIELDS}:
        raise UnreadableError("section claim: the region is not one")
    fields = {**region, "verdict": verdict, "arithmetic": "real", "property": property_}
    return Section("statement", fields, dict(section.arrays), section.budget, section.read)


def no_violation(targets: Iterable[tuple[Condition, ...]]) -> dict[str, Any]:
    """Return the property that in none of the targets all conditions hold.

    It is part of a statement, in which every condition takes more than LEAST_JSON bytes.
    """
    made, count = [], 0
    for target in timed(targets):
        count += len(target)
        if count * LEAST_JSON > MOST_JSON:
            raise RejectedError("its property has more conditions than a statement can have")
        made.append(
            [
                {
                    "scores": {str(k): str(c) for k, c in condition.scores},
                    "constant": "0",
                    "tie_is_fine": condition.strict,
                }
                for condition in target
            ]
        )
    return {"kind": "targets", "targets": made}
