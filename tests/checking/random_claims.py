"""Random questions about tiny networks, with all that the statement of a certificate can say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import bnncert
from bnncert.float32 import float32_network
from bnncert.problem import Problem
from tests import random_questions
from tests.brute_force import TinyNetwork
from tests.checking.claims import random_network

#: Sizes whose proofs have several leaves, clauses and gates.
SIZES = ([2, 9, 3], [2, 6, 4, 3], [2, 8, 5, 2], [2, 6, 5, 4, 3], [2, 5, 4, 4])


@dataclass(frozen=True, eq=False)
class Question:
    """A problem, the network that its certificate is about, and the arithmetic that it states."""

    tiny: TinyNetwork
    network: bnncert.Network
    problem: Problem
    arithmetic: str
    kind: str


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
    arithmetic = "float32" if rng.random() < 0.25 else "real"
    executed = network if arithmetic == "real" else float32_network(network, region)
    problem = random_questions.random_ask(rng, executed, region).problem
    return Question(tiny, network, problem, arithmetic, kind)
