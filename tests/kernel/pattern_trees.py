"""Random deep networks, and certificates with trees of first-layer signs that are made by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import bnncert
from bnncert.kernel.container import Section
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.patterns import LEAF
from bnncert.kernel.proof import PATTERNS
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import Statement
from bnncert.problem import Problem, robustness
from bnncert.problem.problem import float32_network
from bnncert.proofs.writing import _statement
from tests import random_questions
from tests.brute_force import TinyNetwork
from tests.kernel.claims import Judge
from tests.kernel.random_claims import Question


def random_deep(
    rng: np.random.Generator, inputs: int, *, diagonal: bool, sign_zero: str = "plus"
) -> TinyNetwork:
    """Return a network of 1 to 5 sign layers; a diagonal first layer binarises each input."""
    depth = int(rng.integers(1, 6))
    sizes = [inputs, *rng.integers(2, 6, depth).tolist(), 3]
    if diagonal:
        sizes[1] = inputs
    weights, biases = [], []
    for below, above in pairwise(sizes):
        weights.append(rng.choice([-1.0, 0.0, 1.0], (above, below), p=[0.4, 0.2, 0.4]))
        biases.append(rng.integers(-2, 3, above) / 2)
    if diagonal:
        weights[0] = np.diag(rng.choice([-1.0, 1.0], inputs) * rng.integers(1, 4, inputs))
        biases[0] = rng.integers(-3, 4, inputs) / 4
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)  # type: ignore[arg-type]


def random_deep_question(rng: np.random.Generator, kind: str) -> Question:
    """Return a question about a deep network and a region of some kind."""
    diagonal = bool(rng.integers(2))
    inputs = 3 if diagonal and kind != "l2" else 2
    zero = str(rng.choice(["plus", "minus", "either"]))
    tiny = random_deep(rng, inputs, diagonal=diagonal, sign_zero=zero)
    network, region = tiny.build(), random_questions.random_region(rng, kind, inputs)
    arithmetic = "float32" if rng.random() < 0.15 else "real"
    executed = network if arithmetic == "real" else float32_network(network, region)
    problem = random_questions.random_ask(rng, executed, region).problem
    return Question(tiny, network, problem, arithmetic, kind)


def variables_of(problem: Problem, network: bnncert.Network, arithmetic: str = "real") -> int:
    """Return how many first-layer variables the checker has without any clash."""
    claim = Statement.read(_statement(problem, network, "robust", arithmetic, None), network)
    geometry = Geometry(network.layers[0], claim.space, float32=arithmetic == "float32")
    return sum(layer == 0 for layer, _ in Skeleton(network, geometry, {}).owner)


def random_tree(rng: np.random.Generator, variables: int, branch: float = 0.7) -> list[int]:
    """Return a complete tree in preorder."""

    def grow(left: list[int]) -> list[int]:
        if not left or rng.random() > branch:
            return [LEAF]
        v = int(rng.choice(left))
        rest = [k for k in left if k != v]
        return [v, *grow(rest), *grow(rest)]

    return grow(list(range(variables)))


def by_hand(
    problem: Problem, network: bnncert.Network, tree: list[int], arithmetic: str = "real"
) -> list[Section]:
    """Return a certificate of one tree for all targets, in one or two sections."""
    half = len(tree) // 2
    parts = [tree[:half], tree[half:]] if half > 2 else [tree]
    return [
        _statement(problem, network, "robust", arithmetic, None),
        Section("patterns", {"targets": list(range(len(problem.targets)))}),
        *(Section("tree", {}, {"variables": np.array(part, dtype="<i4")}) for part in parts),
    ]


def one_by_one(
    problem: Problem, network: bnncert.Network, tree: list[int], arithmetic: str = "real"
) -> list[Section]:
    """Return a certificate with the same tree for each target, its leaves to be enumerated."""
    numbers = ("unit", "sizes", "tables", "table_values", "gates", "gate_values", "diagonal")
    numbers += ("clash_first", "clash_second", "clash_values", "since", "sizes_of_clauses")
    numbers += ("split_tables", "split_variables", "split_values")
    empty = {name: np.zeros(0, dtype="<i4") for name in (*numbers, "neurons", "signs", "theta")}
    kinds = np.where(np.array(tree) == LEAF, PATTERNS, tree).astype("<i4")
    sections = [_statement(problem, network, "robust", arithmetic, None)]
    for number in range(len(problem.targets)):
        sections.append(Section("target", {"number": number, "objective": 0}))
        sections.append(Section("nodes", {}, {"kind": kinds, **empty}))
    return sections


def robust_tree(norm: str) -> tuple[TinyNetwork, Problem, list[int]]:
    """Return a robust question about three binarised inputs, and a tree with all of its leaves."""
    rng = np.random.default_rng(11)
    while True:
        tiny = random_deep(rng, 3, diagonal=True)
        network, center = tiny.build(), rng.integers(-2, 3, 3) / 8
        label = int(np.argmax(network.evaluate(center)))
        problem = robustness(
            network, bnncert.Ball(norm, center, 1.0 if norm == "linf" else 0.75), label
        )  # type: ignore[arg-type]
        tree = random_tree(rng, variables_of(problem, network), 1.0)
        is_constant = len(np.unique(network.classify(rng.uniform(-9, 9, (50, 3))))) == 1
        # In the box every pattern occurs, so that its answer cannot change.
        if len(tree) < 15 or is_constant != (norm == "linf"):
            continue
        if Judge(tiny).decide(by_hand(problem, network, tree)[0])[0]:
            return tiny, problem, tree
