"""Queries about several networks, against an oracle that enumerates all signs of all networks."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.errors import InputError
from bnncert.model.description import SignZero
from bnncert.problem.vnnlib import parse_vnnlib
from bnncert.problem.vnnlib.query import Specification
from tests.brute_force import Inequality, TinyNetwork, satisfiable
from tests.strategies import few, tiny_networks

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vnnlib") is None, reason="needs the extra 'vnnlib'"
)

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

#: The name of an input and of an output of each network.
NAMES = (("X", "Y"), ("Z", "W"), ("A", "B"))


@dataclass(frozen=True)
class Comparison:
    """Score i of a network, compared with score j of another one plus a constant."""

    i: int
    j: int
    relation: str
    shift: Fraction
    pair: tuple[int, int] = (0, 1)

    def text(self) -> str:
        (one, two), s = self.pair, float(self.shift)
        return f"({self.relation} {NAMES[one][1]}[{self.i}] (+ {NAMES[two][1]}[{self.j}] {s}))"

    def holds(self, scores: Sequence[Sequence[Fraction]]) -> bool:
        one, two = (scores[k] for k in self.pair)
        return bool(COMPARISONS[self.relation](one[self.i], two[self.j] + self.shift))


@dataclass(frozen=True)
class Asked:
    """Networks, the box of all inputs, relations X_i REL Z_i, and alternatives for the scores."""

    networks: tuple[TinyNetwork, ...]
    kinship: str
    box: tuple[tuple[Fraction, Fraction], ...]
    #: For each input of the second network its relation to that of the first ("" for none).
    relations: tuple[str, ...]
    ways: tuple[Comparison, ...]

    @property
    def inputs(self) -> int:
        return int(self.networks[0].weights[0].shape[1])

    def query(self) -> Specification:
        lines = ["(vnnlib-version <2.0>)"]
        for number, (net, (x, y)) in enumerate(zip(self.networks, NAMES, strict=False)):
            kin = f"({self.kinship} f)" if number and self.kinship else ""
            scores = net.weights[-1].shape[0]
            lines.append(
                f"(declare-network {'fgh'[number]} {kin} (declare-input {x} real [{self.inputs}]) "
                f"(declare-output {y} real [{scores}]))"
            )
        for number in range(len(self.networks)):
            for i, (low, high) in enumerate(self.box):
                if number and self.relations[i] == "==":
                    # Its bounds follow from those of the first network.
                    continue
                name = f"{NAMES[number][0]}[{i}]"
                lines.append(f"(assert (and (>= {name} {float(low)}) (<= {name} {float(high)})))")
            for i, relation in enumerate(self.relations):
                if number and relation:
                    one, two = NAMES[0][0], NAMES[number][0]
                    lines.append(f"(assert ({relation} {one}[{i}] {two}[{i}]))")
        ways = [way.text() for way in self.ways]
        lines.append(f"(assert {ways[0] if len(ways) == 1 else f'(or {ways[0]} {ways[1]})'})")
        return parse_vnnlib("\n".join(lines))

    def is_possible(self) -> bool:
        """Whether any inputs satisfy the query: the oracle."""
        return any(way.holds(scores) for scores in _reachable(self) for way in self.ways)


def _relation(size: int, i: int, j: int, relation: str) -> list[Inequality]:
    """Write x_i REL x_j."""
    row = [Fraction(0)] * size
    row[i], row[j] = Fraction(1), Fraction(-1)
    below = (tuple(row), Fraction(0), False)
    above = (tuple(-v for v in row), Fraction(0), False)
    return [*([below] if relation in ("<=", "==") else []), *([above] if relation != "<=" else [])]


def _reachable(asked: Asked) -> Iterator[list[list[Fraction]]]:
    """Yield the scores of all networks at all inputs, for every choice of ties."""
    n, count = asked.inputs, len(asked.networks)
    size = n * count
    system: list[Inequality] = []
    for number in range(count):
        for i, (low, high) in enumerate(asked.box):
            if not (number and asked.relations[i] == "=="):
                row = [Fraction(0)] * size
                row[number * n + i] = Fraction(1)
                system.append((tuple(row), high, False))
                system.append((tuple(-v for v in row), -low, False))
            if number and asked.relations[i]:
                system += _relation(size, i, number * n + i, asked.relations[i])
    neurons = []
    for number, net in enumerate(asked.networks):
        for w, b in zip(net.weights[0], net.biases[0], strict=True):
            row = [Fraction(0)] * size
            row[number * n : number * n + n] = [Fraction(float(v)) for v in w]
            neurons.append((tuple(row), Fraction(float(b))))
    widths = [net.weights[0].shape[0] for net in asked.networks]

    def states(known: list[int], inequalities: list[Inequality]) -> Iterator[list[int]]:
        if not satisfiable(inequalities, size):
            return
        if len(known) == len(neurons):
            yield known
            return
        row, b = neurons[len(known)]
        less, more = (row, -b, True), (tuple(-v for v in row), b, True)
        level = [(row, -b, False), (tuple(-v for v in row), b, False)]
        for state, extra in ((1, [more]), (-1, [less]), (0, level)):
            yield from states([*known, state], [*inequalities, *extra])

    for flat in states([], system):
        firsts, start = [], 0
        for width in widths:
            firsts.append(flat[start : start + width])
            start += width
        yield from _above(asked, firsts, 0)


def _above(asked: Asked, sums: list[list[int]], depth: int) -> Iterator[list[list[Fraction]]]:
    """Decide the ties of a layer in every way, and go on with the next one.

    A network that is shorter waits with its last signs.
    """
    networks = asked.networks
    live = [depth < len(net.weights) - 1 for net in networks]
    if not any(live):
        yield [
            [
                sum(
                    (Fraction(float(w)) * s for w, s in zip(row, x, strict=True)),
                    Fraction(float(b)),
                )
                for row, b in zip(net.weights[-1], net.biases[-1], strict=True)
            ]
            for net, x in zip(networks, sums, strict=True)
        ]
        return
    # Copies share their choices: the key of a tie is the neuron, not the network as well.
    shared = asked.kinship == "equal-to"
    free = sorted(
        {
            (0 if shared else k, j)
            for k, values in enumerate(sums)
            for j, v in enumerate(values)
            if live[k] and v == 0 and networks[k].sign_zero == "either"
        }
    )
    for choice in product((1, -1), repeat=len(free)):
        chosen = dict(zip(free, choice, strict=True))
        signs = []
        for k, (net, values) in enumerate(zip(networks, sums, strict=True)):
            fixed = {"plus": 1, "minus": -1}.get(net.sign_zero, 0)
            signs.append(
                values
                if not live[k]
                else [
                    (1 if v > 0 else -1 if v < 0 else fixed or chosen[0 if shared else k, j])
                    for j, v in enumerate(values)
                ]
            )
        following = []
        for net, x in zip(networks, signs, strict=True):
            if depth + 1 < len(net.weights) - 1:
                w, b = net.weights[depth + 1], net.biases[depth + 1]
                values = [Fraction(float(v)) for v in np.asarray(w @ np.array(x) + b)]
                following.append([(v > 0) - (v < 0) for v in values])
            else:
                following.append(x)
        yield from _above(asked, following, depth + 1)


quarters = st.integers(-6, 6).map(lambda v: Fraction(v, 4))


@st.composite
def questions(draw: st.DrawFn, kinship: str, count: int = 2) -> Asked:
    small = tiny_networks(inputs=2, max_depth=2)
    nets = [draw(small)]
    zero: SignZero = nets[0].sign_zero
    if count > 2 and zero == "either":
        zero = "plus"
        nets = [TinyNetwork(nets[0].weights, nets[0].biases, zero)]
    for _ in range(count - 1):
        other = nets[0] if kinship == "equal-to" else draw(small)
        nets.append(TinyNetwork(other.weights, other.biases, zero))
    low = [draw(quarters) for _ in range(2)]
    box = tuple((v, v + draw(st.integers(0, 6)) / Fraction(4)) for v in low)
    relations = tuple(draw(st.sampled_from(["==", "==", "<=", ">=", ""])) for _ in range(2))
    ways = []
    for _ in range(draw(st.integers(1, 2))):
        one, two = draw(st.sampled_from([(0, 1), (1, 0), (0, 0), (0, count - 1)]))
        ways.append(
            Comparison(
                draw(st.integers(0, nets[one].weights[-1].shape[0] - 1)),
                draw(st.integers(0, nets[two].weights[-1].shape[0] - 1)),
                draw(st.sampled_from(sorted(COMPARISONS))),
                Fraction(draw(st.integers(-2, 2)), 2),
                (one, two),
            )
        )
    return Asked(tuple(nets), kinship, box, relations, tuple(ways))


def models(asked: Asked) -> dict[str, bnncert.Network]:
    built = [net.build() for net in asked.networks]
    kept = built[:1] if asked.kinship == "equal-to" else built
    return dict(zip("fgh", kept, strict=False))


def check(asked: Asked) -> None:
    found = bnncert.verify(models(asked), asked.query(), timeout=60)
    if found.status in ("robust", "not_robust"):
        assert (found.status == "not_robust") == asked.is_possible()
    point = found.counterexample
    if point is not None:
        assert asked.query().holds(
            [Fraction(v) for v in (point.exact or point.point.tolist())],
            [Fraction(v) for v in point.scores.tolist()],
        )


@few(30)
@given(questions("equal-to"))
def test_two_copies_of_one_network(asked: Asked) -> None:
    check(asked)


@few(30)
@given(questions(""))
def test_two_networks(asked: Asked) -> None:
    check(asked)


@few(15)
@given(questions("", 3))
def test_three_networks(asked: Asked) -> None:
    check(asked)


@few(20)
@given(st.sampled_from(["equal-to", ""]).flatmap(questions))
def test_float32_proofs_are_proofs(asked: Asked) -> None:
    found = bnncert.verify(models(asked), asked.query(), arithmetic="float32", timeout=60)
    if found.status in ("robust", "not_robust"):
        assert (found.status == "not_robust") == asked.is_possible()


# -- what is refused, and what is special -----------------------------------------------------

NET = TinyNetwork(
    (np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[1.0, 1.0], [-1.0, -1.0]])),
    (np.zeros(2), np.zeros(2)),
    "either",
)


def text_of(kinship: str, *asserts: str, scores: int = 2) -> Specification:
    box = [
        f"(and (>= {name}[{i}] 0.0) (<= {name}[{i}] 1.0))" for name in ("X", "Z") for i in range(2)
    ]
    lines = ["(vnnlib-version <2.0>)"]
    for name, kin, x, y in (("f", "", "X", "Y"), ("g", kinship, "Z", "W")):
        lines.append(
            f"(declare-network {name} {kin} (declare-input {x} real [2]) "
            f"(declare-output {y} real [{scores}]))"
        )
    return parse_vnnlib("\n".join([*lines, *(f"(assert {a})" for a in (*box, *asserts))]), "q")


SAME = ("(== X[0] Z[0])", "(== X[1] Z[1])")


def test_copies_decide_ties_alike_and_other_networks_do_not() -> None:
    asserts = (*SAME, "(> Y[0] W[0])")
    net = NET.build()
    assert bnncert.verify({"f": net}, text_of("(equal-to f)", *asserts)).vnncomp_word == "unsat"
    both = {"f": net, "g": net}
    found = bnncert.verify(both, text_of("(isomorphic-to f)", *asserts))
    assert found.vnncomp_word == "sat"
    assert found.counterexample is not None and found.counterexample.point.size == 4
    assert found.counterexample.scores.size == 4


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("f", "network g has no model (--network g=FILE)"),
        ("fgh", "declares no network 'h'; it declares f, g"),
    ],
)
def test_a_model_for_each_network(names: str, words: str) -> None:
    query = text_of("", "(> Y[0] W[0])")
    with pytest.raises(InputError) as caught:
        bnncert.verify(dict.fromkeys(names, NET.build()), query)
    assert words in str(caught.value)


def test_a_copy_has_no_model_of_its_own() -> None:
    query = text_of("(equal-to f)", "(> Y[0] W[0])")
    with pytest.raises(InputError, match="declared equal to f, whose model it has"):
        bnncert.verify({"f": NET.build(), "g": NET.build()}, query)


def test_isomorphic_networks_have_the_same_layers() -> None:
    wide = TinyNetwork((np.ones((3, 2)), np.ones((2, 3))), (np.zeros(3), np.zeros(2)), "plus")
    query = text_of("(isomorphic-to f)", "(> Y[0] W[0])")
    with pytest.raises(InputError, match="layers 2-3-2 and 2-2-2"):
        bnncert.verify({"f": NET.build(), "g": wide.build()}, query)


def test_float32_executions_of_two_files_may_differ_where_both_have_a_neuron() -> None:
    """The neurons are equal, but near its threshold each file may round to another side."""
    net, asserts = NET.build(), (*SAME, "(> Y[0] W[0])")
    how: dict[str, Any] = {"sign_zero": "plus", "arithmetic": "float32", "timeout": 20}
    copies = bnncert.verify({"f": net}, text_of("(equal-to f)", *asserts), **how)
    assert copies.vnncomp_word == "unsat"
    files = {"f": net, "g": net}
    assert bnncert.verify(files, text_of("(isomorphic-to f)", *asserts), **how).status == "unknown"


def test_what_every_output_satisfies_depends_on_the_inputs_alone() -> None:
    """At the only input a sign is undecided in float32, and nothing is asked about the scores."""
    asserts = ("(<= X[0] 0.0)", "(<= X[1] 0.0)", *SAME, "(!= Y[0] (+ Y[0] 0.5))")
    net, query = NET.build(), text_of("(equal-to f)", *asserts)
    assert bnncert.verify({"f": net}, query, sign_zero="plus").vnncomp_word == "sat"
    found = bnncert.verify({"f": net}, query, sign_zero="plus", arithmetic="float32", timeout=20)
    assert found.vnncomp_word != "unsat"


def test_scores_that_do_not_fit() -> None:
    query = text_of("", "(> Y[0] W[0])", scores=3)
    with pytest.raises(InputError, match="network f: declares 3 outputs, the network has 2"):
        bnncert.verify({"f": NET.build(), "g": NET.build()}, query)


def test_softmax_of_two_networks_is_not_compared() -> None:
    net = replace(NET.build(), output_transform="softmax")
    query = text_of("(equal-to f)", *SAME, "(> Y[0] W[0])")
    with pytest.raises(InputError, match=r"ends? in Softmax"):
        bnncert.verify({"f": net}, query)
    apart = text_of("(equal-to f)", *SAME, "(> Y[0] Y[1])", "(< W[0] W[1])")
    assert bnncert.verify({"f": net}, apart, sign_zero="plus").vnncomp_word == "unsat"


def test_a_certificate_is_about_one_network(tmp_path: Path) -> None:
    query = text_of("(equal-to f)", "(> Y[0] W[0])")
    with pytest.raises(InputError, match="several networks has no certificate"):
        bnncert.verify({"f": NET.build()}, query, certificate=tmp_path / "c")


def test_names_are_for_queries() -> None:
    with pytest.raises(InputError, match="for a VNN-LIB query that declares them"):
        bnncert.verify({"f": NET.build()}, bnncert.Box([0, 0], [1, 1]), 0)
