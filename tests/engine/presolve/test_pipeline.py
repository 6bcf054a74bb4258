"""Everything presolve claims, against every reachable pattern of the whole network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.presolve.pipeline import Presolved, PresolveStep, presolve
from tests.brute_force import TinyNetwork, reachable_first_layers
from tests.clock import Clock
from tests.strategies import NORMS, few, regions, tiny_networks

FEW = few(25)

KINDS = (*NORMS, "l2")

Array = npt.NDArray[Any]
Pattern = tuple[tuple[int, ...], ...]


def reachable_patterns(net: TinyNetwork, region: bnncert.Region) -> Iterator[Pattern]:
    """Yield the signs of all hidden layers, with every choice at ties that may go either way."""
    hidden = list(zip(net.weights[1:-1], net.biases[1:-1], strict=True))

    def above(pattern: Pattern) -> Iterator[Pattern]:
        if len(pattern) == len(hidden) + 1:
            yield pattern
            return
        w, b = hidden[len(pattern) - 1]
        choices = []
        for row, bias in zip(w.tolist(), b.tolist(), strict=True):
            u = Fraction(bias) + sum(int(p) * q for p, q in zip(row, pattern[-1], strict=True))
            if u:
                choices.append((1,) if u > 0 else (-1,))
            else:
                choices.append({"plus": (1,), "minus": (-1,), "either": (1, -1)}[net.sign_zero])
        for signs in product(*choices):
            yield from above((*pattern, signs))

    for first in reachable_first_layers(net, region):
        yield from above((first,))


def check_step(step: PresolveStep, signs: list[Array], sums: list[Array], layers: Any) -> None:
    """Check every fact of a step at all patterns (rows of the arrays)."""
    x = signs[step.layer]
    own = x[:, step.neurons]
    if step.rule in ("stable", "fixed"):
        assert np.all(own == step.signs)
    elif step.rule == "clash":
        assert step.other is not None and step.other_signs is not None
        assert step.witness is not None and step.witness.size == step.count
        assert not np.any((own == step.signs) & (x[:, step.other] == step.other_signs))
    elif step.rule in ("equal", "same"):
        assert step.other is not None
        assert np.all(own == step.signs * x[:, step.other])
    elif step.rule == "literal":
        assert step.other is not None and step.other_layers is not None
        for k, (layer, other) in enumerate(zip(step.other_layers, step.other, strict=True)):
            assert layer < step.layer
            assert np.all(own[:, k] == step.signs[k] * signs[layer][:, other])
    else:
        assert step.rule == "range" and step.witness is not None
        shift = layers[step.layer].shift[step.neurons]
        u = sums[step.layer][:, step.neurons] - shift
        assert np.all((step.witness[:, 0] <= u) & (u <= step.witness[:, 1]))


def check_layers(presolved: Presolved, signs: list[Array], sums: list[Array]) -> None:
    variables = (
        np.stack(
            [
                signs[layer][:, neuron]
                for layer, neuron in zip(presolved.owner_layer, presolved.owner, strict=True)
            ],
            axis=1,
        )
        if presolved.owner.size
        else np.zeros((signs[0].shape[0], 0))
    )
    depth = len(signs)
    for number, (layer, x) in enumerate(zip(presolved.layers, signs, strict=True)):
        state = layer.bounds.state
        assert np.all(x[:, state != 0] == state[state != 0])
        if number:
            u = sums[number]
            assert np.all((layer.bounds.lower <= u) & (u <= layer.bounds.upper))
            known = variables[:, : layer.rows.shape[1]]
            np.testing.assert_array_equal(known @ layer.rows.toarray().T + layer.shift, u)
        open_ = np.flatnonzero(state == 0)
        if number and number == depth - 1:
            assert np.all(layer.variable == -1)
        else:
            assert np.all(layer.variable[open_] >= 0)
            claimed = layer.sign[open_] * variables[:, layer.variable[open_]]
            np.testing.assert_array_equal(claimed, x[:, open_])
    first, second = presolved.pairs.first, presolved.pairs.second
    left = variables[:, first // 2] == 1 - 2 * (first % 2)
    right = variables[:, second // 2] == 1 - 2 * (second % 2)
    assert not np.any(left & right)


def check_presolve(
    net: TinyNetwork, region: bnncert.Region, deadline: Deadline | None = None
) -> None:
    patterns = list(reachable_patterns(net, region))
    presolved = presolve(net.build(), region, deadline=deadline)
    if not patterns:
        # Only an L2 oracle that leaves out touching patterns could say so.
        return
    assert not presolved.contradiction
    depth = len(net.weights) - 1
    signs = [np.array([p[i] for p in patterns]) for i in range(depth)]
    sums = [signs[0]] + [signs[i - 1] @ net.weights[i].T for i in range(1, depth)]
    for step in presolved.record.steps:
        check_step(step, signs, sums, presolved.layers)
    check_layers(presolved, signs, sums)


@given(data=st.data(), kind=st.sampled_from(KINDS))
@few(30)
def test_every_claim_holds_whenever_the_time_ends(data: st.DataObject, kind: str) -> None:
    net = data.draw(tiny_networks(exact_ties=kind != "l2"))
    region = data.draw(regions(kind))
    with pytest.MonkeyPatch.context() as patch:
        for place, most in (
            ("engine.presolve.pairs.CHUNK", 8),
            ("engine.presolve.pairs.PRODUCTS_AT_ONCE", 8),
            ("engine.presolve.conflicts.CELLS_AT_ONCE", 4),
            ("engine.presolve.pipeline.WEIGHTS_AT_ONCE", 4),
            ("engine.presolve.stability.WEIGHTS_AT_ONCE", 2),
            ("deadline.MOST_LATE", 40),
        ):
            patch.setattr(f"bnncert.{place}", data.draw(st.integers(1, most)))
        Clock(patch, tick=1.0)
        with suppress(OutOfTimeError):
            check_presolve(net, region, Deadline(data.draw(st.integers(1, 80))))


@given(data=st.data(), kind=st.sampled_from(KINDS))
@few(30)
def test_every_claim_holds_at_every_reachable_pattern(data: st.DataObject, kind: str) -> None:
    net = data.draw(tiny_networks(exact_ties=kind != "l2"))
    region = data.draw(regions(kind))
    check_presolve(net, region)


@given(data=st.data())
@FEW
def test_every_claim_holds_in_deep_networks(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(max_depth=4))
    check_presolve(net, data.draw(regions(data.draw(st.sampled_from(["box", "linf", "l1"])))))


@st.composite
def wide_networks(draw: st.DrawFn, sign_zero: str) -> TinyNetwork:
    """Networks whose inner rows repeat up to sign, so that neurons merge and ties are common."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes = [2, 4, *rng.integers(3, 7, int(rng.integers(1, 3))), 3, 2]
    weights, biases = [], []
    for i in range(len(sizes) - 1):
        base = rng.integers(-1, 2, (2, sizes[i]))
        copies = base[rng.integers(0, 2, sizes[i + 1])] * rng.choice([-1, 1], (sizes[i + 1], 1))
        fresh = rng.integers(-1, 2, copies.shape)
        use = rng.random((sizes[i + 1], 1)) < (0.7 if i else 0.3)
        weights.append(np.where(use, copies, fresh).astype(np.float64))
        biases.append(rng.integers(-2, 3, sizes[i + 1]) / (2 if rng.random() < 0.5 else 1))
    return TinyNetwork(tuple(weights), tuple(biases), sign_zero)


@pytest.mark.parametrize("sign_zero", ["plus", "minus", "either"])
@given(data=st.data())
@FEW
def test_every_claim_holds_where_neurons_merge(sign_zero: str, data: st.DataObject) -> None:
    net = data.draw(wide_networks(sign_zero))
    check_presolve(net, data.draw(regions(data.draw(st.sampled_from(["box", "linf"])))))


def same_array(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")


@given(data=st.data())
@FEW
def test_presolve_is_deterministic(data: st.DataObject) -> None:
    net = data.draw(tiny_networks(max_depth=4))
    region = data.draw(regions(data.draw(st.sampled_from(["box", "linf", "l1"]))))
    built = net.build()
    one, two = presolve(built, region), presolve(built, region)
    assert len(one.record.steps) == len(two.record.steps)
    fields = ("neurons", "signs", "other", "other_signs", "other_layers", "witness")
    for a, b in zip(one.record.steps, two.record.steps, strict=True):
        assert (a.rule, a.layer) == (b.rule, b.layer)
        assert all(same_array(getattr(a, f), getattr(b, f)) for f in fields)
    for p, q in zip(one.layers, two.layers, strict=True):
        assert same_array(p.bounds.state, q.bounds.state)
        assert same_array(p.bounds.lower, q.bounds.lower)
        assert same_array(p.bounds.upper, q.bounds.upper)
        assert same_array(p.variable, q.variable) and same_array(p.sign, q.sign)
        assert same_array(p.rows.toarray(), q.rows.toarray())
    for name in ("first", "second", "theta"):
        assert same_array(getattr(one.pairs, name), getattr(two.pairs, name))


@given(data=st.data())
@FEW
def test_counts_add_up(data: st.DataObject) -> None:
    """Every neuron is open, or was fixed or replaced by exactly one fact."""
    net = data.draw(tiny_networks(max_depth=4))
    region = data.draw(regions(data.draw(st.sampled_from(["box", "linf", "l1"]))))
    presolved = presolve(net.build(), region)
    counts = presolved.record.counts()
    assert sum(counts.values()) == sum(step.count for step in presolved.record.steps)
    assert all(step.count > 0 for step in presolved.record.steps)
    depth = len(presolved.layers)
    assert presolved.owner.size == presolved.owner_layer.size
    for number, layer in enumerate(presolved.layers):
        owned = int(np.count_nonzero(presolved.owner_layer == number))
        settled = sum(
            counts.get((number, rule), 0)
            for rule in ("stable", "fixed", "equal", "literal", "same")
        )
        if number and number == depth - 1:
            assert owned == 0
            assert settled + layer.bounds.unstable.size == layer.bounds.state.size
        else:
            assert settled + owned == layer.bounds.state.size


def test_a_chain_of_rules() -> None:
    """x1 >= 1 implies x1 >= 0; two equal neurons; one literal; one merged row."""
    first = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    second = np.array([[1.0, 0, 0, 0], [0, 0, 1, 1], [0, 0, -1, -1], [1, 1, 1, 1]])
    net = TinyNetwork(
        (first, second, np.ones((1, 4)), np.ones((2, 1))),
        (np.array([-1.0, 0.0, 0.0, 0.0]), np.array([0.0, 1, -1, 1]), np.zeros(1), np.zeros(2)),
        "plus",
    )
    region = bnncert.Box([-2, -2], [2, 2])
    presolved = presolve(net.build(), region)
    assert presolved.record.counts()[(1, "literal")] == 1
    assert presolved.record.counts()[(1, "same")] == 1
    assert presolved.record.counts()[(0, "clash")] >= 2
    check_presolve(net, region)
    # x_0 = + and x_1 = - exclude each other.
    pairs = zip(presolved.pairs.first.tolist(), presolved.pairs.second.tolist(), strict=True)
    assert (0, 3) in set(pairs)


def test_equal_ties_are_chosen_independently() -> None:
    # Both neurons of layer 2 are sign(x + y); at a tie each may take either sign.
    net = TinyNetwork(
        (np.eye(2), np.ones((2, 2)), np.array([[1.0, -1.0]]), np.array([[1.0], [-1.0]])),
        (np.zeros(2), np.zeros(2), np.ones(1), np.zeros(2)),
        "either",
    )
    check_presolve(net, bnncert.Box([-1, -1], [1, 1]))
