"""Verify a small collision-avoidance controller, in the style of the ACAS Xu properties.

The controller (``advisory.json``, a ternary 5-32-32-5 network made by ``advisory_train.py``) sees
an encounter with another aircraft and scores five advisories; the highest score wins.

Run ``python docs/examples/advisory.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bnncert
from bnncert.engine.verdict import Result
from bnncert.problem import Target, output_polytope, robustness, score_objective
from bnncert.questions.prover import solve

FloatArray = npt.NDArray[np.float64]

HERE = Path(__file__).resolve().parent

CLEAR, WEAK_LEFT, WEAK_RIGHT, STRONG_LEFT, STRONG_RIGHT = range(5)
ADVISORIES = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")

#: What the network sees, with the physical range that is scaled to [-1, 1].  Angles are in
#: degrees, counted to the left: a bearing of 90 is an intruder on the left, a heading of 180 one
#: that comes the other way, a heading of 0 one that flies in the same direction.
QUANTITIES: Mapping[str, tuple[float, float]] = {
    "distance": (0.0, 8000.0),
    "bearing": (-180.0, 180.0),
    "heading": (-180.0, 180.0),
    "own speed": (50.0, 250.0),
    "intruder speed": (50.0, 250.0),
}
LOWEST: FloatArray = np.array([low for low, _ in QUANTITIES.values()])
HIGHEST: FloatArray = np.array([high for _, high in QUANTITIES.values()])


def to_inputs(encounters: npt.ArrayLike) -> FloatArray:
    """Scale metres, degrees and metres per second to the network's inputs."""
    values = np.asarray(encounters, dtype=np.float64)
    return np.asarray(2.0 * (values - LOWEST) / (HIGHEST - LOWEST) - 1.0)


def to_encounters(inputs: npt.ArrayLike) -> FloatArray:
    """Undo :func:`to_inputs`."""
    values = np.asarray(inputs, dtype=np.float64)
    return np.asarray(LOWEST + (values + 1.0) / 2.0 * (HIGHEST - LOWEST))


def encounter_box(**limits: tuple[float, float]) -> bnncert.Box:
    """Return the box of inputs within the limits; what is not mentioned may take any value."""
    named = {name.replace(" ", "_"): span for name, span in QUANTITIES.items()}
    spans = {**named, **limits}
    if len(spans) != len(named):
        raise ValueError(f"unknown quantities: {sorted(set(limits) - set(named))}")
    ends = np.array(list(spans.values()), dtype=np.float64).T
    return bnncert.Box(to_inputs(ends[0]), to_inputs(ends[1]))


@dataclass(frozen=True, eq=False)
class Property:
    """Something the controller should do, in words and as a problem."""

    name: str
    words: str
    problem: bnncert.Problem


def never_clear(network: bnncert.Network, region: bnncert.Region) -> bnncert.Problem:
    """Return the problem "clear of conflict is not the advisory anywhere in the region".

    It is violated where the score of "clear of conflict" reaches all four others at once: one
    target, a conjunction.  With score_k - score_0 as objectives a tie counts as a violation.
    """
    objectives = tuple(
        score_objective(
            network,
            {turn: Fraction(1), CLEAR: Fraction(-1)},
            name=f"{ADVISORIES[turn]} - {ADVISORIES[CLEAR]}",
        )
        for turn in (WEAK_LEFT, WEAK_RIGHT, STRONG_LEFT, STRONG_RIGHT)
    )
    return bnncert.Problem(network, region, (Target("clear of conflict", objectives),))


def strong_scores_at_most(
    network: bnncert.Network, region: bnncert.Region, limit: float
) -> bnncert.Problem:
    """Return the problem "both strong advisories score at most `limit` in the region"."""
    matrix = np.zeros((2, network.classes))
    matrix[0, STRONG_LEFT] = matrix[1, STRONG_RIGHT] = 1.0
    return output_polytope(network, region, matrix, [limit, limit])


def properties(network: bnncert.Network) -> tuple[Property, ...]:
    """Return the properties of this example.  All limits are exact floats after scaling."""
    ahead = {"distance": (500.0, 1500.0), "bearing": (-22.5, 22.5)}
    return (
        Property(
            "A1",
            "close, ahead, coming towards us and to our left: never clear of conflict",
            never_clear(network, encounter_box(**ahead, heading=(90.0, 180.0))),
        ),
        Property(
            "A2",
            "close, ahead, flying our way but slower: never clear of conflict",
            never_clear(
                network,
                encounter_box(
                    **ahead,
                    heading=(-45.0, 45.0),
                    own_speed=(150.0, 250.0),
                    intruder_speed=(50.0, 150.0),
                ),
            ),
        ),
        Property(
            "A3",
            "close and ahead, whatever the heading and the speeds: never clear of conflict",
            never_clear(network, encounter_box(**ahead)),
        ),
        Property(
            "B1",
            "from 6000 m, where the policy has no alerts: clear of conflict",
            robustness(network, encounter_box(distance=(6000.0, 8000.0)), CLEAR),
        ),
        Property(
            "B2",
            "from 7000 m: clear of conflict",
            robustness(network, encounter_box(distance=(7000.0, 8000.0)), CLEAR),
        ),
        Property(
            "C",
            "from 6000 m: no strong advisory scores more than 5",
            strong_scores_at_most(network, encounter_box(distance=(6000.0, 8000.0)), 5.0),
        ),
    )


def check(problem: bnncert.Problem, timeout: float = 60.0) -> Result:
    """Decide one property."""
    return solve([problem], "auto", timeout, None, None, check_centre=True)


def explain(found: bnncert.Counterexample) -> str:
    """Return a counterexample in physical units."""
    distance, bearing, heading, own, intruder = to_encounters(found.point)
    scores = ", ".join(f"{score:g}" for score in found.scores)
    return (
        f"intruder at {distance:.0f} m, bearing {bearing:.1f}, heading {heading:.1f}, "
        f"speeds {own:.0f} and {intruder:.0f} m/s:\n"
        f"     {ADVISORIES[int(np.argmax(found.scores))]}, scores {scores} "
        f"(replayed: {', '.join(found.replayed_in)})"
    )


def main() -> dict[str, Result]:
    """Decide all properties, print what came out, and return it."""
    network = bnncert.load(HERE / "advisory.json")
    print(f"controller {'-'.join(map(str, network.sizes))}, ternary weights")
    words = {"robust": "holds", "not_robust": "FAILS"}
    results = {}
    for item in properties(network):
        result = results[item.name] = check(item.problem)
        print(f"{item.name:3}{item.words}")
        print(f"     {words.get(result.status, 'open')} ({result.seconds:.2f} s)")
        if result.counterexample is not None:
            print(f"     {explain(result.counterexample)}")
    return results


if __name__ == "__main__":
    main()
