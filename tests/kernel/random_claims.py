"""Random questions about tiny networks, with all that the statement of a certificate can say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import bnncert
from bnncert.problem import Problem
from bnncert.problem.problem import float32_network
from tests import random_questions
from tests.brute_force import TinyNetwork
from tests.kernel.claims import random_network
from tests.random_shapes import on_stated_grid

#: Sizes whose proofs have several leaves, clauses and gates.
SIZES = ([2, 9, 3], [2, 6, 4, 3], [2, 8, 5, 2], [2, 6, 5, 4, 3], [2, 5, 4, 4])


#: Share of questions about grid points, or about inputs of which few change.
FEW_VALUES = 0.4


@dataclass(frozen=True, eq=False)
class Question:
    """A problem, the network that its certificate is about, and the arithmetic that it states."""

    tiny: TinyNetwork
    network: bnncert.Network
    problem: Problem
    arithmetic: str
    kind: str

    @property
    def has_all_patterns(self) -> bool:
        """Whether every pattern of the first layer occurs: it reads a box input by input."""
        first = self.tiny.weights[0]
        square = first.shape[0] == first.shape[1]
        diagonal = square and not np.any(first - np.diag(first.diagonal()))
        return diagonal and self.kind in ("linf", "box") and self.arithmetic == "real"


def random_question(rng: np.random.Generator) -> Question:
    """Return a question about any region, property, tie rule, sign(0) and arithmetic."""
    kind = str(rng.choice(random_questions.KINDS))
    # The oracle knows discs, but no ball in space.
    inputs = 2 if kind == "l2" or rng.random() < 0.7 else int(rng.choice([1, 3]))
    zero = str(rng.choice(["plus", "minus", "either"]))
    tiny = random_questions.random_network(rng, inputs, zero)
    if inputs == 2 and rng.random() < 0.7:
        tiny = random_network(rng, SIZES[int(rng.integers(len(SIZES)))], sign_zero=zero)
    network, region = tiny.build(), random_questions.random_region(rng, kind, inputs)
    if rng.random() < FEW_VALUES:
        region = with_few_values(rng, region)
    arithmetic = "float32" if rng.random() < 0.25 else "real"
    executed = network if arithmetic == "real" else float32_network(network, region)
    problem = random_questions.random_ask(rng, executed, region).problem
    return Question(tiny, network, problem, arithmetic, kind)


def with_few_values(rng: np.random.Generator, region: bnncert.Region) -> bnncert.Region:
    """Return grid points of a region, or inputs of which few change; itself if that is refused."""
    step, origin = float(rng.choice([0.25, 0.5, 0.75, 1.0])), float(rng.integers(-4, 5)) / 4
    grid = bnncert.Grid(step, origin)
    try:
        if rng.random() < 0.3:
            on_grid = rng.random() < 0.5
            center = origin + step * np.round(region.center / step) if on_grid else region.center
            changes, reach = int(rng.integers(region.size + 1)), float(rng.integers(0, 7)) / 4
            return bnncert.L0Ball(center, changes, within=reach, grid=grid if on_grid else None)
        return on_stated_grid(region, grid)
    except bnncert.InputError:
        # There is no grid point, or the step is larger than the data box.
        return region
