"""Networks whose thresholds are widened: both signs near the threshold, and another identity."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bnncert
from bnncert.kernel.rules.weight_flips import (
    NEVER,
    Fault,
    flip_costs,
    flip_network,
    with_faults,
    with_own_flips,
    with_raised_scores,
    with_wrong_signs,
)
from bnncert.model.layers import TIED


@pytest.fixture
def network() -> bnncert.Network:
    weights = [[[1, 1], [1, -1], [0, 1]], [[1, 1, 1], [1, 0, -1]], [[1, 0], [0, 1]]]
    return bnncert.Network.from_arrays(weights, [[0, 0, 0.5], [0, 1], [0, 0]])


def test_a_wrong_sign_below_widens_the_thresholds_by_two(network: bnncert.Network) -> None:
    wide = with_wrong_signs(network, 0, 1)
    sharp, layer = network.layers[1], wide.layers[1]
    assert (sharp.plus_from - layer.plus_from).tolist() == [2, 2]
    assert (layer.minus_upto - sharp.minus_upto).tolist() == [2, 2]
    assert layer.exact_signs(np.array([1, 1, -1], dtype=np.int8)).tolist() == [TIED, 1]
    # More wrong signs than inputs change no more than all inputs.
    most = with_wrong_signs(network, 0, 99).layers[1]
    assert most.slack is not None and most.slack.tolist() == [6, 4]


def test_every_change_has_its_own_identity(network: bnncert.Network) -> None:
    box = (np.full(2, -1.0), np.full(2, 1.0))
    made = [
        network,
        with_wrong_signs(network, 0, 1),
        with_wrong_signs(network, 0, 2),
        with_own_flips(network, 0, 1, *box),
        with_own_flips(network, 1, 3, *box),
        with_raised_scores(network, {1: Fraction(1)}),
        with_faults(network, [Fault(0, 2, 1)]),
        with_faults(network, [Fault(1, 0, None, 1)]),
        with_faults(network, [Fault(1, 0, None, -1)]),
    ]
    assert len({n.content_hash for n in made}) == len(made)
    assert with_faults(network, []).content_hash == network.content_hash


def test_a_widened_network_is_not_written(network: bnncert.Network, tmp_path: object) -> None:
    with pytest.raises(bnncert.InputError, match="widened thresholds cannot be written"):
        with_wrong_signs(network, 0, 1).save(f"{tmp_path}/network.npz")


def test_own_flips_widen_the_first_layer_by_the_largest_inputs(network: bnncert.Network) -> None:
    layer = with_own_flips(network, 0, 1, np.array([-0.5, 0.25]), np.array([0.25, 1.0])).layers[0]
    low, high = layer.enclosure
    assert low == pytest.approx([-2, -2, -1.5]) and high == pytest.approx([2, 2, 2.5])
    assert np.all(low < [-2, -2, -1.5]) and np.all(high > [2, 2, 2.5])


@pytest.mark.parametrize(("sign_zero", "costs"), [("plus", [2, 1]), ("minus", [1, 1])])
def test_a_tie_counts_as_the_network_says(sign_zero: str, costs: list[int]) -> None:
    network = bnncert.Network.from_arrays(
        [[[1, 1], [1, 1]], [[1, 0], [0, 1]]],
        [[0.25, 0.125], [0, 0]],
        sign_zero=sign_zero,  # type: ignore[arg-type]
    )
    # One flip changes the sum 0.75 to -0.25, which is a tie for the first neuron.
    point = np.array([0.5, 0.25])
    layer = network.layers[0]
    found = flip_costs(layer, point, layer.exact_signs(point))
    assert found.tolist() == costs


def test_a_sign_that_no_flips_change(network: bnncert.Network) -> None:
    layer = bnncert.Network.from_arrays([[[1, 1]], [[1], [0]]], [[5], [0, 0]]).layers[0]
    assert flip_costs(layer, np.ones(2), np.ones(1, dtype=np.int8)).tolist() == [NEVER]


def test_the_network_of_flips_changes_a_sign_at_its_cost(network: bnncert.Network) -> None:
    home, cost = np.array([1, -1, 1], dtype=np.int8), np.array([1, 2, 3])
    flips = flip_network(network, 0, home, cost)
    for counts, signs in (([0, 1, 2], [1, -1, 1]), ([1, 2, 3], [-1, 1, -1])):
        assert flips.layers[0].exact_signs(np.array(counts, dtype=float)).tolist() == signs


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(0, 2, 0), "weight 0"),
        (Fault(2, 0, 1), "not that of a weight"),
        (Fault(3, 0, 0), "layer 4"),
        (Fault(0, 3, 0), "no such neuron"),
        (Fault(0, 0, None, 0), "no sign"),
    ],
)
def test_faults_that_do_not_exist(network: bnncert.Network, fault: Fault, message: str) -> None:
    with pytest.raises(bnncert.InputError, match=message):
        with_faults(network, [fault])
