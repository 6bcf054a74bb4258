"""Certificates in pieces, and an oracle that decides what a statement says by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert.deadline import Deadline
from bnncert.kernel import RejectedError, Report, UnreadableError, check
from bnncert.kernel.container import Section, Writer, read_sections
from bnncert.kernel.function import common_shift
from bnncert.kernel.space import Space
from bnncert.problem import Problem, robustness
from bnncert.proofs.writing import write_counterexample, write_proof
from bnncert.questions.prover import solve
from tests.brute_force import TinyNetwork
from tests.kernel.stated_regions import is_listed, last_layers

REFUSALS = (RejectedError, UnreadableError)


def pack(path: Path, sections: list[Section]) -> Path:
    """Write sections with a right checksum, whatever they say."""
    file = BytesIO()
    writer = Writer(file)
    for section in sections:
        writer.add(section)
    writer.end()
    path.write_bytes(file.getvalue())
    return path


def unpack(path: Path) -> list[Section]:
    return [
        Section(s.name, dict(s.fields), {k: v.copy() for k, v in s.arrays.items()})
        for s in read_sections(path)
    ]


def accepted(path: Path, network: bnncert.Network) -> Report | None:
    """Return the report, or None for a refusal; everything else is an error of the checker."""
    try:
        return check(path, network)
    except REFUSALS:
        return None


def answer(path: Path, problem: Problem, network: bnncert.Network, **options: Any) -> str:
    """Decide a problem and write the certificate of the answer, which must always be possible."""
    result = solve([problem], "auto", 20)
    if result.status == "robust":
        write_proof(path, problem, network, deadline=Deadline(20), **options)
    else:
        assert result.status == "not_robust" and result.counterexample is not None
        write_counterexample(path, problem, network, result.counterexample, **options)
    return result.status


def functions_of(statement: Section) -> Iterator[list[tuple[dict[int, Fraction], Fraction, bool]]]:
    """Yield the objectives of every target: scores, constant, whether a tie is fine."""
    claim = statement.fields["property"]
    if claim["kind"] == "classification":
        for rival in claim["rivals"]:
            scores = {claim["label"]: Fraction(1), rival: Fraction(-1)}
            yield [(scores, Fraction(0), claim["ties"] == "robust")]
        return
    for target in claim["targets"]:
        yield [
            (
                {int(k): Fraction(c) for k, c in o["scores"].items()},
                Fraction(o["constant"]),
                o["tie_is_fine"],
            )
            for o in target
        ]


def is_true(statement: Section, tiny: TinyNetwork) -> bool:
    """Decide a statement by looking at every reachable pattern."""
    return Judge(tiny).decide(statement)[0]


class Judge:
    """Decides statements about one network by brute force; regions are remembered."""

    def __init__(self, tiny: TinyNetwork) -> None:
        self.tiny = tiny
        self._known: dict[str, set[tuple[int, ...]]] = {}

    def _reachable(self, statement: Section) -> set[tuple[int, ...]]:
        """Return the last layer's sign vectors on the region of a statement."""
        fields = statement.fields
        zero = fields.get("sign_zero") or self.tiny.sign_zero
        key = f"{zero} {[fields.get(k) for k in ('region', 'radius', 'within', 'grid')]} "
        key += str({k: v.tolist() for k, v in sorted(statement.arrays.items())})
        if key not in self._known:
            tiny = replace(self.tiny, sign_zero=zero)
            self._known[key] = last_layers(tiny, statement)
        return self._known[key]

    def decide(self, statement: Section) -> tuple[bool, bool]:
        """Return whether a statement is true, and whether its region has any input."""
        w = [[Fraction(v) for v in row] for row in self.tiny.weights[-1].tolist()]
        b = [Fraction(v) for v in self.tiny.biases[-1].tolist()]
        targets = list(functions_of(statement))
        reached, signs = False, self._reachable(statement)
        for x in signs:
            score = [
                sum(p * q for p, q in zip(r, x, strict=True)) + c for r, c in zip(w, b, strict=True)
            ]
            for target in targets:
                values = [
                    (sum(c * score[k] for k, c in s.items()) + d, fine) for s, d, fine in target
                ]
                reached |= all(f < 0 or (f == 0 and not fine) for f, fine in values)
        if not is_listed(statement):
            # Not every input was looked at: only what was reached is known.
            return statement.fields["verdict"] == "not_robust" or not reached, True
        return reached == (statement.fields["verdict"] == "not_robust"), bool(signs)

    def objection(
        self, report: Report, statement: Section, sign_zero: str | None = None
    ) -> str | None:
        """Return what is wrong with an accepted certificate, or None.

        Its statement has to be true, to be about something, and to be what the report says in
        words; `sign_zero` is the value of sign(0) that the checker was told.
        """
        claim, fields = statement.fields["property"], statement.fields
        zero = sign_zero or self.tiny.sign_zero
        if fields.get("sign_zero") not in (None, zero):
            return f"sign(0) is {zero}, and {fields['sign_zero']} was accepted"
        expected = {"sign_zero": zero, "arithmetic": fields["arithmetic"]}
        expected["ties"] = claim.get("ties", "as stated")
        if not expected.items() <= report.assumptions.items():
            return f"{report.assumptions} for {fields}"
        if report.verdict != fields["verdict"] or not self._is_named(report.statement, claim):
            return f"{report.verdict}, {report.statement!r} for {fields}"
        true, inhabited = self.decide(statement)
        if not true:
            return f"not true: {fields}"
        if not inhabited and report.assumptions["inputs"] == "shown":
            return f"an empty region that is not called so: {fields}"
        return None

    def _is_named(self, words: str, claim: dict[str, Any]) -> bool:
        """Whether the property is about something, and the statement says about what."""
        classes = range(self.tiny.weights[-1].shape[0])
        if "label" not in claim:
            about = all(any(o["scores"] for o in target) for target in claim["targets"])
            return about and bool(claim["targets"]) and f" {len(claim['targets'])} cond" in words
        rivals = claim["rivals"]
        if not rivals or len({claim["label"], *rivals} & set(classes)) != 1 + len(rivals):
            return False
        named = "all other classes" if len(rivals) == len(classes) - 1 > 1 else None
        named = named or f"class{'es' * (len(rivals) > 1)} {', '.join(map(str, rivals))}"
        return f"class {claim['label']} scores" in words and f" {named} (" in words


def random_network(
    rng: np.random.Generator, sizes: list[int], *, scale: int = 2, sign_zero: str = "plus"
) -> TinyNetwork:
    """Return a network with ternary weights (small multiples of 1/scale in the first layer)."""
    weights, biases = [], []
    for i in range(len(sizes) - 1):
        shape = (sizes[i + 1], sizes[i])
        first = rng.integers(-2 * scale, 2 * scale + 1, shape) / scale
        weights.append(first if i == 0 else rng.integers(-1, 2, shape).astype(float))
        biases.append(rng.integers(-3, 4, shape[0]) / 2)
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)


def robust_problem(tiny: TinyNetwork, region: bnncert.Region, ties: str = "violation") -> Problem:
    """Return the question whether the class of the region's centre wins throughout."""
    network = tiny.build()
    label = int(np.argmax(network.evaluate(region.center)))
    return robustness(network, region, label, "all", ties)  # type: ignore[arg-type]


def excluding_pair() -> tuple[Problem, dict[str, np.ndarray]]:
    """Return a question, and a pair of signs without which its target would be reached.

    x > 1 and x < -1 exclude each other.
    """
    weights = [np.array([[1.0], [-1.0]]), np.ones((1, 2)), np.array([[-1.0], [0.0]])]
    biases = [np.array([-1.0, -1.0]), np.array([-2.0]), np.array([0.5, 0.0])]
    network = bnncert.Network.from_arrays(weights, biases)
    arrays = {
        "sizes_of_clauses": np.array([2]),
        "neurons": np.array([0, 1]),
        "signs": np.array([1, 1]),
        "theta": np.array([1, 1]),
    }
    return robustness(network, bnncert.Ball("linf", np.zeros(1), 2.0), 0), arrays


#: Seeds whose proofs have several leaves, learned clauses and (deep) gates.
SEEDS = {"linf": 298, "l2": 196, "l1": 207, "polytope": 70, "deep": 382, "one": 166}
#: Of these, but for the first, the proofs have trees of inputs.
SEEDS |= {"grid": 103, "l1 grid": 42, "polytope grid": 138, "l0 grid": 196, "l0": 154}
SIZES = {"polytope": [2, 8, 6, 3], "deep": [2, 7, 5, 4, 3], "one": [2, 9, 3]}


def example(kind: str, seed: int | None = None) -> tuple[TinyNetwork, bnncert.Region]:
    """Return a network and a region of some kind; without a seed one that takes a real proof."""
    seed = SEEDS[kind] if seed is None else seed
    rng = np.random.default_rng(seed)
    zero = ("plus", "minus", "either")[seed % 3]
    tiny = random_network(rng, SIZES.get(kind, [2, 9, 6, 3]), sign_zero=zero)
    c, r = rng.integers(-4, 5, 2) / 4, float(rng.integers(2, 7) / 4)
    if kind in ("grid", "l1 grid", "polytope grid", "l0 grid", "l0"):
        return tiny, _few_values(kind, c, r)
    if kind == "l2":
        return tiny, bnncert.Ball("l2", c, r, c - 0.75 * r, c + 0.75 * r)
    if kind == "l1":
        return tiny, bnncert.Ball("l1", c, r, c - 0.5 * r, c + 0.75 * r)
    if kind == "polytope":
        matrix = np.array([[1.0, 1.0], [-1.0, 2.0]])
        return tiny, bnncert.Polytope(matrix, matrix @ c + 0.5, c - r, c + r)
    return tiny, bnncert.Ball("linf", c, r)


def _few_values(kind: str, c: np.ndarray, r: float) -> bnncert.Region:
    """Return a region of grid points, or one in which one input changes."""
    grid = bnncert.Grid(0.75, 0.25)
    if kind.startswith("l0"):
        center = 0.25 + 0.75 * np.round(c)
        return bnncert.L0Ball(
            center, 1, center - r, center + 3.0, grid=None if kind == "l0" else grid
        )
    if kind == "l1 grid":
        return bnncert.Ball("l1", c, r + 0.75, c - 1.5, c + 2.0, grid)
    if kind == "polytope grid":
        matrix = np.array([[1.0, 1.0], [-1.0, 2.0]])
        return bnncert.Polytope(matrix, matrix @ c + 0.5, c - r, c + r, grid)
    return bnncert.Ball("linf", c, r + 0.75, grid=grid)


def exact_space(
    lower: list[Fraction],
    upper: list[Fraction],
    matrix: np.ndarray,
    right: np.ndarray,
    *,
    norm: str | None = None,
    center: list[Fraction] | None = None,
    radius: Fraction = Fraction(0),
) -> Space:
    """Return a region whose numbers are rationals over powers of two."""
    whole, shift = common_shift([*lower, *upper, *(center or []), radius])
    n = len(lower)
    low, high, middle = whole[:n], whole[n : 2 * n], whole[2 * n : -1]
    return Space(low, high, norm, middle, whole[-1], shift, matrix, right)
