"""The rules about faults, beside loops over all sets of flips and of wrong signs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.kernel.rules.fault_losses import (
    LastSigns,
    knapsack,
    largest_losses,
    largest_output_losses,
    last_signs_on,
    sum_of_largest,
)
from bnncert.kernel.rules.fault_questions import FaultScope, FaultSetting
from bnncert.kernel.rules.weight_flips import (
    NEVER,
    Fault,
    FaultError,
    flip_costs,
    flip_network,
    with_faults,
    with_own_flips,
    with_raised_scores,
    with_wrong_signs,
)
from bnncert.questions.faults.fault_attack import sign_gains, weight_gains
from tests.kernel.rules.plain_layers import derived_outcomes, in_units
from tests.plain_network import PlainNetwork, flipped, is_other, random_plain, subsets
from tests.questions.faults.oracle import least_faults, places
from tests.strategies import few

seeds = given(seed=st.integers(0, 2**32 - 1))


def some_points(rng: np.random.Generator, inputs: int, count: int) -> list[tuple[int, ...]]:
    return [tuple(int(v) for v in rng.integers(-6, 7, inputs)) for _ in range(count)]


def box_around(points: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    columns = list(zip(*points, strict=True))
    return np.array([min(c) for c in columns]) / 4, np.array([max(c) for c in columns]) / 4


def scaled(point: tuple[int, ...]) -> list[Fraction]:
    return [Fraction(v, 4) for v in point]


def small(rng: np.random.Generator, **about: Any) -> PlainNetwork:
    return random_plain(rng, int(rng.integers(1, 4)), **about)


# -- weight_flips -------------------------------------------------------------------------------


@few(80)
@seeds
def test_the_cost_of_a_sign_is_the_least_number_of_flips(seed: int) -> None:
    rng = np.random.default_rng([11, seed])
    net = small(rng, sign_zero=str(rng.choice(["plus", "minus"])))
    network, (p,) = net.build(), some_points(rng, net.inputs, 1)
    below: tuple[Any, ...] = p
    for number in range(net.depth):
        home = [net.signs(u)[0] for u in net.sums(number, below)]
        inputs = np.array(below) / 4 if number == 0 else np.array(below, dtype=np.int8)
        costs = flip_costs(network.layers[number], inputs, np.array(home, dtype=np.int8))
        for j, row in enumerate(net.weights[number]):
            used = [i for i, w in enumerate(row) if w]
            changing = [
                len(chosen)
                for chosen in subsets(len(used))
                for other in [flipped(net, [(number, j, used[k]) for k in chosen])]
                if other.signs(other.sums(number, below)[j])[0] != home[j]
            ]
            assert costs[j] == min(changing, default=NEVER)
        below = tuple(home)


@few(80)
@seeds
def test_a_network_with_faults_has_the_scores_of_changed_weights(seed: int) -> None:
    rng = np.random.default_rng([12, seed])
    net = small(rng)
    network = net.build()
    (all_weights,), (all_stuck,) = (
        places(net, kind, "anywhere", None) for kind in ("weights", "thresholds")
    )
    count = int(rng.integers(0, min(4, len(all_weights) + 1)))
    chosen = [all_weights[k] for k in rng.permutation(len(all_weights))[:count].tolist()]
    stuck = {(n, j): s for n, j, s in all_stuck if rng.random() < 0.2}
    # A stuck neuron has no weights that could flip.
    chosen = [(n, j, i) for n, j, i in chosen if (n, j) not in stuck]
    faults = [Fault(n, j, i) for n, j, i in chosen]
    faults += [Fault(n, j, None, s) for (n, j), s in stuck.items()]
    faulty, other = with_faults(network, faults), flipped(net, chosen)
    for p in some_points(rng, net.inputs, 4):
        wanted = {in_units(s, network, net.factors[1]) for s in other.outcomes(p, stuck)}
        assert derived_outcomes(faulty, scaled(p)) == wanted


@few(80)
@seeds
def test_a_network_of_flips_has_other_signs_from_their_costs_on(seed: int) -> None:
    rng = np.random.default_rng([13, seed])
    net = small(rng)
    network, number = net.build(), int(rng.integers(net.depth))
    size = len(net.biases[number])
    home, cost = rng.choice([-1, 1], size), rng.choice([1, 2, 3, NEVER], size)
    made = flip_network(network, number, home.astype(np.int8), cost)
    for _ in range(4):
        flips = rng.integers(0, 4, size).tolist()
        signs = {
            (number, j): int(h if t < c else -h)
            for j, (h, t, c) in enumerate(zip(home, flips, cost, strict=True))
        }
        point = (0,) * net.inputs
        wanted = {in_units(s, network, net.factors[1]) for s in net.outcomes(point, signs)}
        assert derived_outcomes(made, flips) == wanted


# -- widened ------------------------------------------------------------------------------------


@few(80)
@seeds
def test_widened_networks_allow_all_wrong_signs_and_all_flips(seed: int) -> None:
    rng = np.random.default_rng([14, seed])
    net = small(rng, depth=int(rng.integers(2, 4)))
    network, count = net.build(), int(rng.integers(0, 3))
    number = int(rng.integers(net.depth - 1))
    points = some_points(rng, net.inputs, 2)
    wrong = with_wrong_signs(network, number, count)
    own = with_own_flips(network, number, count, *box_around(points))
    for p in points:
        possible = derived_outcomes(wrong, scaled(p))
        below = _signs_below(net, p, number + 1)
        for signs in below:
            for changed in combinations(range(len(signs)), count):
                stuck = {(number, j): -s if j in changed else s for j, s in enumerate(signs)}
                for scores in net.outcomes(p, stuck):
                    assert in_units(scores, network, net.factors[1]) in possible
        possible = derived_outcomes(own, scaled(p))
        choices = []
        for j, row in enumerate(net.weights[number]):
            used = [(number, j, i) for i, w in enumerate(row) if w]
            sets = [s for k in range(count + 1) for s in combinations(used, k)]
            choices.append([sets[int(k)] for k in rng.permutation(len(sets))[:3]])
        for chosen in product(*choices):
            other = flipped(net, [place for each in chosen for place in each])
            for scores in other.outcomes(p):
                assert in_units(scores, network, net.factors[1]) in possible


def _signs_below(net: PlainNetwork, point: tuple[int, ...], layers: int) -> set[tuple[int, ...]]:
    """Return the signs that the last of some layers may have."""
    states: set[tuple[int, ...]] = {point}
    for number in range(layers):
        states = {
            signs
            for state in states
            for signs in product(*(net.signs(u) for u in net.sums(number, state)))
        }
    return states


@few(80)
@seeds
def test_raised_scores_are_raised_by_at_least_as_much(seed: int) -> None:
    rng = np.random.default_rng([15, seed])
    net = small(rng)
    network, rival = net.build(), int(rng.integers(net.classes))
    loss = Fraction(int(rng.integers(0, 30)), int(rng.integers(1, 8)))
    (p,) = some_points(rng, net.inputs, 1)
    made = derived_outcomes(with_raised_scores(network, {rival: loss}), scaled(p))
    for scores in derived_outcomes(network, scaled(p)):
        rest = [s for k, s in enumerate(scores) if k != rival]
        close = [m for m in made if [s for k, s in enumerate(m) if k != rival] == rest]
        assert any(0 <= m[rival] - scores[rival] - loss < Fraction(1, 10**9) for m in close)


# -- fault_losses, sum_ranges -------------------------------------------------------------------


@few(80)
@given(st.data())
def test_the_knapsack_is_the_best_of_all_sets(data: st.DataObject) -> None:
    size, budget = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 6))
    unit = data.draw(st.sampled_from([1, 2**62]))
    gains = [unit * data.draw(st.integers(-3, 5)) for _ in range(size)]
    cost = [data.draw(st.integers(1, 4)) for _ in range(size)]
    table = np.array(gains, dtype=object if unit > 1 else np.int64)
    best, chosen = knapsack(np.array(cost), table, budget)
    for limit in range(budget + 1):
        allowed = [s for s in subsets(size) if sum(cost[k] for k in s) <= limit]
        assert best[limit] == max(sum(gains[k] for k in s) for s in allowed)
    assert sum(cost[k] for k in chosen) <= budget and len(set(chosen)) == len(chosen)
    assert sum(gains[k] for k in chosen) == best[-1]
    most = max(sum(gains[k] for k in s) for s in subsets(size) if len(s) <= budget)
    assert sum_of_largest(table, budget) == most


@few(80)
@seeds
def test_losses_are_at_least_those_of_all_faults(seed: int) -> None:
    """Known signs give the largest loss, and unknown ones at least that of each choice."""
    rng = np.random.default_rng([16, seed])
    net = small(rng, depth=1, sign_zero="plus")
    network, count = net.build(), int(rng.integers(0, 3))
    output, width = network.output, len(net.biases[0])
    label, rival = rng.permutation(net.classes)[:2].tolist()
    state = rng.choice([-1, 0, 1], width).astype(np.int8)
    last = LastSigns(state, np.ones(width, dtype=np.int64))
    unit = Fraction(net.factors[1]) / Fraction(output.gain) / 2
    (weights,) = places(net, "weights", "layer", 1)
    flips = [place for place in weights if place[1] in (label, rival)]
    exact = bool(np.all(state != 0))
    for signs in product(*((1, -1) if s == 0 else (int(s),) for s in state)):

        def margin(chosen: Any, wrong: Any = (), signs: Any = signs) -> int:
            below = [-s if j in wrong else s for j, s in enumerate(signs)]
            scores = flipped(net, chosen).sums(1, below)
            return int(scores[label] - scores[rival])

        home = margin(())
        by_weights = [home - margin(s) for k in range(count + 1) for s in combinations(flips, k)]
        by_rows = [
            home - margin(s)
            for row in (label, rival)
            for k in range(count + 1)
            for s in combinations([f for f in flips if f[1] == row], k)
        ]
        by_signs = [
            home - margin((), s) for k in range(count + 1) for s in combinations(range(width), k)
        ]
        by_both = [
            home - margin(s, w)
            for k in range(count + 1)
            for s in combinations(flips, k)
            for w in combinations(range(width), count - k)
        ]
        pair = (label, rival)
        for found, losses, sharp in (
            (largest_output_losses(output, pair, count, last, one_row=False), by_weights, True),
            (largest_output_losses(output, pair, count, last, one_row=True), by_rows, True),
            (largest_losses(output, pair, count, last, weights=False), by_signs, True),
            (largest_losses(output, pair, count, last, weights=True), by_both, False),
        ):
            assert found >= max(losses) * unit
            assert not (exact and sharp) or found == max(losses) * unit
        array = np.array(signs, dtype=np.int8)
        one = sum_of_largest(sign_gains(output, pair, array), 1)
        assert Fraction(one, output.integers[1]) == unit * max(
            [0, *(home - margin((), (j,)) for j in range(width))]
        )
        rows = weight_gains(output, pair, array)
        assert Fraction(sum_of_largest(np.concatenate(rows), count), output.integers[1]) == (
            unit * max(by_weights)
        )


@few(80)
@seeds
def test_signs_on_a_box_are_those_of_all_its_points(seed: int) -> None:
    """No fewer flips than stated change the sign of a neuron of the last layer."""
    rng = np.random.default_rng([17, seed])
    net = small(rng)
    points = some_points(rng, net.inputs, int(rng.integers(1, 4)))
    found = last_signs_on(net.build(), *box_around(points))
    number = net.depth - 1
    for p in points:
        for below in [p] if number == 0 else _signs_below(net, p, number):
            for j, total in enumerate(net.sums(number, below)):
                state, cost = int(found.state[j]), int(found.cost[j])
                assert state == 0 or net.signs(total) == (state,)
                used = [(number, j, i) for i, w in enumerate(net.weights[number][j]) if w]
                for k in range(min(cost, len(used) + 1)):
                    for chosen in combinations(used, k):
                        other = flipped(net, chosen).sums(number, below)[j]
                        assert state == 0 or net.signs(other) == (state,)


# -- fault_questions ----------------------------------------------------------------------------


def is_robust(network: bnncert.Network, points: list[Any], label: int, ties: str) -> bool:
    """Whether the class wins at all points, by plain loops over the derived network."""
    found = (scores for p in points for scores in derived_outcomes(network, p))
    return not any(is_other(scores, label, ties) for scores in found)  # type: ignore[arg-type]


def scopes(net: PlainNetwork) -> list[FaultScope]:
    """Return all scopes of a network."""
    found = [FaultScope("weights", "anywhere"), FaultScope("thresholds", "anywhere")]
    for number in range(net.depth + 1):
        found += [FaultScope("weights", "layer", number), FaultScope("weights", "neuron", number)]
        found += [FaultScope("thresholds", "layer", number)] if number < net.depth else []
    return found


def follows(
    setting: FaultSetting, scope: FaultScope, count: int, proof: Any, points: Any, ties: str
) -> bool:
    """Whether the questions of a proof are answered by "robust", by plain loops."""
    label = setting.label
    if proof == "computed":
        (scores,) = derived_outcomes(setting.network, scaled(points[0]))
        losses = setting.losses(scope, count).items()
        left = [scores[label] - scores[rival] - loss for rival, loss in losses]
        return all(v > 0 or (v == 0 and ties == "robust") for v in left)
    for question in setting.questions(scope, count, proof):
        where: list[Any] = [scaled(p) for p in points]
        if question.flips is not None:
            flips = product(range(question.flips + 1), repeat=question.network.inputs)
            where = [t for t in flips if sum(t) <= question.flips]
        if not is_robust(question.network, where, label, ties):
            return False
    return True


def test_questions_without_faults_imply_the_tolerance_of_faults() -> None:
    """At a point, those of one layer hold if and only if the faults are tolerated."""
    proved: Counter[str] = Counter()

    @few(80)
    @seeds
    def check(seed: int) -> None:
        rng = np.random.default_rng([18, seed])
        net = random_plain(rng, int(rng.integers(1, 3)), depth=int(rng.choice([1, 2, 3])))
        points = some_points(rng, net.inputs, 1)
        if rng.random() < 0.5:
            points.append(tuple(v + int(rng.integers(-1, 2)) for v in points[0]))
        label, ties = min(net.classes_at(points[0])), str(rng.choice(["violation", "robust"]))
        network = net.build()
        rivals = [k for k in range(net.classes) if k != label]
        setting = FaultSetting(network, label, rivals, *box_around(points))
        if not is_robust(network, [scaled(p) for p in points], label, ties):
            return
        for scope in scopes(net):
            for count in (1, 2):
                if count > scope.size(network) or (count == 2 and rng.random() < 0.5):
                    continue
                for proof in setting.proofs(scope):
                    about = (scope.kind, scope.place, scope.layer)
                    if follows(setting, scope, count, proof, points, ties):
                        least = least_faults(net, points, label, ties, about, count)
                        assert least is None, (scope, count, proof, least)
                        proved[f"{proof} {scope.place} {count}"] += 1
                    elif proof in ("computed", "flips") and scope.place != "anywhere":
                        least = least_faults(net, points, label, ties, about, count)
                        assert least is not None, (scope, count, proof)
                        proved[f"not {proof} {scope.place}"] += 1

    check()
    assert len(proved) > 12, proved


def test_a_fault_in_each_of_two_layers() -> None:
    """No two flips in one layer change the class, but one in each of the first two layers."""
    first, second = [[1, 1], [-1, -1], [1, 1]], [[1, -1, 1], [1, 1, -1], [1, 1, 1]]
    third, output = [[1, 1, 1], [1, 1, -1], [-1, -1, -1]], [[-1, -1, 0], [1, 1, 1]]
    biases = [[1, -2, -1], [-2, -4, -4], [-2, -4, -2], [0, -2]]
    net, points = PlainNetwork([first, second, third, output], biases, "plus"), [(-5, 3)]
    (label,) = net.classes_at(points[0])
    setting = FaultSetting(net.build(), label, [1 - label], *box_around(points))
    assert least_faults(net, points, label, "robust", ("weights", "anywhere", None), 2) == 2
    for number in range(4):
        assert least_faults(net, points, label, "robust", ("weights", "layer", number), 2) is None
    scope = FaultScope("weights", "anywhere")
    assert not follows(setting, scope, 2, "flips", points, "robust")


def test_an_input_quantiser_has_thresholds_and_no_weights() -> None:
    """The device stores what inputs are compared with; there is no bit that could flip."""
    weights = [[[1, 0], [0, -1], [1, 0]], [[1, 1, -1], [1, -1, 1]], [[1, 1], [-1, 1]]]
    network = bnncert.Network.from_arrays(weights, [[0.5, 0.5, -1.5], [0.5, 0.5], [0.5, 0]])
    label = int(network.classify([1.0, 1.0])[0])
    point = bnncert.Ball("linf", np.array([1.0, 1.0]), 0)
    result = bnncert.faults(network, point, label, timeout=60)
    scopes = {(r.scope.kind, r.scope.place, r.scope.layer) for r in result.rows}
    assert ("thresholds", "layer", 0) in scopes and ("weights", "layer", 1) in scopes
    assert not {("weights", "layer", 0), ("weights", "neuron", 0)} & scopes
    anywhere = result.row("weights", "anywhere")
    assert anywhere.is_exact and all(f.layer > 0 for f in anywhere.faults)
    assert FaultScope("weights", "anywhere").size(network) == 6 + 4
    with pytest.raises(FaultError, match="and no weights"):
        FaultScope("weights", "layer", 0).refuse_missing(network)
    with pytest.raises(FaultError, match="weight of the input quantiser"):
        with_faults(network, [Fault(0, 0, 0)])
    # A hidden layer alone is not taken as one, and a second input is a weight to flip.
    single = bnncert.Network.from_arrays([weights[0], [[1, 1, 1], [0, 0, 0]]], [[0] * 3, [0, 0]])
    assert FaultScope("weights", "anywhere").size(single) == 3 + 3
    weights[0][0] = [1, 1]
    wider = bnncert.Network.from_arrays(weights, [[0.5, 0.5, -1.5], [0.5, 0.5], [0.5, 0]])
    assert FaultScope("weights", "anywhere").size(wider) == 4 + 6 + 4
