"""Bound how much energy a learned model of an oscillator can create.

The surrogate (``energy.json``, a 2-24-24-2 network made by ``energy_train.py``) maps the state
x = (position, velocity) of a harmonic oscillator to its state y one time step later.  The true
motion keeps E(x) = |x|^2 / 2.  The surrogate only does so approximately, and the question is where

    f(x) = TOLERANCE + E(x) - E(y) > 0,

that is, where a step cannot add more than TOLERANCE.  f is quadratic in the inputs and in the
signs of the last layer, so moment relaxations bound it from below, box by box.

Run ``python docs/examples/energy.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

import bnncert
from bnncert.questions.polynomial_bound import network_input, score

HERE = Path(__file__).resolve().parent

#: Energies in the square below reach 0.25.
TOLERANCE = 0.1

#: The square [-SIDE, SIDE]^2 is cut into TILES x TILES boxes.
SIDE, TILES = 0.5, 4

#: Weakest first.
METHODS = ("sdp-standard", "sdp-tight", "sdp-order2")

#: Sampled states per box, for the upper bounds.
OPTIONS = bnncert.Options(samples=300)


@dataclass(frozen=True, eq=False)
class Answer:
    """Lower bounds of f on a box by method, and the lowest value of f that sampling saw."""

    region: bnncert.Box
    lower: dict[str, float]
    upper: float

    @property
    def verdict(self) -> str:
        """Which method excludes growth beyond the tolerance, or that it occurs."""
        for method, bound in self.lower.items():
            if bound > 0:
                return f"excluded by {method}"
        return "occurs" if self.upper <= 0 else "open"


def energy_margin(network: bnncert.Network) -> bnncert.Polynomial:
    """Return f = TOLERANCE + E(x) - E(y)."""
    position, velocity = network_input(0), network_input(1)
    later_position, later_velocity = score(network, 0), score(network, 1)
    before = (position * position + velocity * velocity) * 0.5
    after = (later_position * later_position + later_velocity * later_velocity) * 0.5
    return TOLERANCE + before - after


def boxes() -> Iterator[bnncert.Box]:
    """Yield the tiles of the square, and two boxes farther out."""
    edges = np.linspace(-SIDE, SIDE, TILES + 1).tolist()
    for low_velocity, high_velocity in pairwise(edges):
        for low_position, high_position in pairwise(edges):
            yield bnncert.Box([low_position, low_velocity], [high_position, high_velocity])
    yield bnncert.Box([0.625, 0.625], [0.75, 0.75])
    yield bnncert.Box([-0.75, 0.0], [-0.625, 0.125])


def check(network: bnncert.Network, region: bnncert.Box) -> Answer:
    """Bound f on one box by every method."""
    margin = energy_margin(network)
    found = [
        bnncert.bound_polynomial(network, region, margin, method=method, options=OPTIONS)
        for method in METHODS
    ]
    lower = {bound.method: bound.lower for bound in found}
    return Answer(region, lower, min(bound.upper for bound in found))


def main() -> list[Answer]:
    """Check all boxes, print what came out, and return it."""
    network = bnncert.load(HERE / "energy.json")
    print(f"surrogate {'-'.join(map(str, network.sizes))}; f = {TOLERANCE} + E(x) - E(y)")
    names = "".join(f"{method:>14}" for method in METHODS)
    print(f"{'position':>18}{'velocity':>18}{names}{'sampled':>10}  growth above {TOLERANCE}")
    answers = []
    for region in boxes():
        answer = check(network, region)
        answers.append(answer)
        ends = "".join(
            f"  [{low:6.3f}, {high:6.3f}]"
            for low, high in zip(region.lo.tolist(), region.hi.tolist(), strict=True)
        )
        numbers = "".join(f"{answer.lower[method]:14.4f}" for method in METHODS)
        print(f"{ends}{numbers}{answer.upper:10.4f}  {answer.verdict}")
    return answers


if __name__ == "__main__":
    main()
