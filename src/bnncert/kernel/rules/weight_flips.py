r"""Weight bits that flip: w becomes -w.

A flip of weight i of a neuron with the sum u = sum_i w_i y_i changes u by -2 w_i y_i.  At one point
the fewest flips that change the sign s of the neuron are those with the largest s w_i y_i > 0: n of
them suffice iff

    s u - 2 (the sum of the n largest s w_i y_i)  <=  the largest s u with the other sign.

Zero weights have no bit that could flip.

Other networks are at least as free as one with faults.  If at most k neurons of a layer have
another sign than their inputs give them, a sum of the next layer is wrong by at most twice the sum
of its k largest |w_i|; if k weights of a neuron flip, its own sum is wrong by at most twice its k
largest |w_i y_i|.  A neuron whose sum may be wrong by s can be +1 from s below its threshold, and
-1 up to s above it.  Above the last layer, the score of a rival is raised by as much as faults can
lower the margin over it.  Every neuron is wrong on its own here, so the widened network allows more
than k faults do: if it is robust, then so is the network with any k faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray, IntArray, SignArray
from bnncert.errors import InputError
from bnncert.kernel.budget import timed
from bnncert.model.layers import ROUNDOFF, UNIT, ThresholdLayer
from bnncert.model.matrices import CsrArrays, with_data, without_zeros
from bnncert.model.network import Network
from bnncert.model.rationals import float_above

#: The cost of a sign that no flips change.
NEVER = 2**30


class FaultError(InputError):
    """A fault or a question about faults that a network does not have."""


@dataclass(frozen=True)
class Fault:
    """A weight that flips, or a neuron whose threshold is stuck so that it has one sign."""

    #: The layer, from 0 (the output comes after the last hidden layer), and the neuron in it.
    layer: int
    neuron: int
    #: The input of the weight; None for a stuck threshold.
    input: int | None = None
    #: The sign of a neuron with a stuck threshold; 0 for a weight.
    sign: int = 0


def has_input_quantiser(network: Network) -> bool:
    """Whether the first of several layers compares single inputs with thresholds.

    A device stores these thresholds, and no weight bits: there is nothing to flip.
    """
    return network.depth > 1 and bool(np.all(np.diff(network.layers[0].rows.indptr) == 1))


def refuse_shared_weights(network: Network) -> None:
    """Raise if a layer is a convolution or max-pooling: its entries are not one bit each."""
    for number, layer in enumerate(network.layers, start=1):
        is_window = layer.convolution is not None or layer.name.endswith("(max-pool)")
        if is_window or layer.bits == "shared":
            raise _shared(network, number, layer.name)
    if network.output.bits == "shared":
        raise _shared(network, network.depth + 1, network.output.name)


def _shared(network: Network, number: int, name: str) -> FaultError:
    return FaultError(
        f"{network.source}: layer {number} ({name}) shares its weights between neurons or has "
        "none; bit faults are defined for dense layers"
    )


def refuse_shifted_inputs(network: Network, number: int | None) -> None:
    """Raise if a flipped bit of a layer (None: of any layer) changes more than a weight.

    Of a layer with the sums w.(y + c), c being a constant of the file, w.c is in the threshold.
    """
    bits = [(layer.bits, layer.name) for layer in network.layers]
    bits.append((network.output.bits, network.output.name))
    for k, (kind, name) in enumerate(bits):
        if kind == "shifted" and number in (None, k):
            raise FaultError(
                f"{network.source}: layer {k + 1} ({name}) shifts its inputs, so a flipped weight "
                "moves its threshold, too; ask about other layers"
            )


def flip_costs(
    layer: ThresholdLayer,
    below: npt.NDArray[Any],
    home: SignArray,
    *,
    certain: bool = False,
    only: int | None = None,
) -> IntArray:
    """Return the least number of flips after which each neuron can have the other sign.

    `below` are the inputs of the network for the first layer, else the signs below, and `home` the
    signs of its neurons at these inputs.  The other sign has to be `certain`, which differs from
    possible only where a bias of the first layer is irrational.  `only` is the neuron whose cost is
    of interest, or None for all of them.
    """
    cost = np.full(layer.size, NEVER, dtype=np.int64)
    for j in timed(range(layer.size) if only is None else (only,)):
        row = slice(layer.rows.indptr[j], layer.rows.indptr[j + 1])
        columns, weights = layer.rows.indices[row], layer.rows.data[row]
        limit, strict = _other_sign(layer, j, int(home[j]), certain)
        if layer.is_lattice:
            terms = int(home[j]) * weights.astype(np.int64) * below[columns].astype(np.int64)
            sums = int(terms.sum()) - 2 * np.cumsum(-np.sort(-terms[terms > 0]))
            reached = sums <= int(limit)
            cost[j] = 1 + int(np.argmax(reached)) if reached.any() else NEVER
            continue
        values = below[columns].astype(np.float64)
        cost[j] = _real_cost(int(home[j]) * weights.astype(np.float64), values, limit, strict)
    return cost


def _other_sign(
    layer: ThresholdLayer, neuron: int, home: int, certain: bool
) -> tuple[Fraction, bool]:
    """Return the limit of home * u below which the other sign occurs, and whether it is strict."""
    if layer.is_lattice:
        limit = layer.minus_upto[neuron] if home > 0 else -layer.plus_from[neuron]
        return Fraction(int(limit)), False
    low, high = (Fraction(float(side[neuron])) for side in layer.enclosure)
    # home * (u + b) is at least home * u + least and at most home * u + most.
    least, most = (low, high) if home > 0 else (-high, -low)
    if low == high:
        return -least, layer.sign_zero == ("plus" if home > 0 else "minus")
    return (-most, True) if certain else (-least, False)


def _real_cost(weights: FloatArray, values: FloatArray, limit: Fraction, strict: bool) -> int:
    """Return the least number of flips for real inputs, in rationals where floats do not decide."""
    terms = weights * values
    largest = -np.sort(-terms[terms > 0])
    gaps = float(terms.sum()) - 2 * np.cumsum(largest) - float(limit)
    size = 3 * float(np.abs(terms).sum()) + abs(float(limit))
    error = 4 * (terms.size + 4) * ROUNDOFF * size + 1e-290
    if not np.any(np.abs(gaps) <= error):
        return 1 + int(np.argmax(gaps < 0)) if np.any(gaps < 0) else NEVER
    exact = [
        Fraction(w) * Fraction(v) for w, v in zip(weights.tolist(), values.tolist(), strict=True)
    ]
    rest = sum(exact, Fraction(0)) - limit
    for count, term in enumerate(sorted((t for t in exact if t > 0), reverse=True), start=1):
        rest -= 2 * term
        if rest < 0 or (rest == 0 and not strict):
            return count
    return NEVER


def flip_network(network: Network, number: int, home: SignArray, cost: IntArray) -> Network:
    """Return the layers from `number` on as a network whose inputs are numbers of flips.

    Input j is the number of flips in neuron j of the layer, whose sign is home_j if it is below
    cost_j, else -home_j:  sign(home_j (cost_j - 1/2 - t_j)).
    """
    count = home.size
    places = np.arange(count, dtype=np.int32)
    rows = CsrArrays(
        -home.astype(np.int8), places, np.arange(count + 1, dtype=np.int32), (count,) * 2
    )
    bias = home * (np.minimum(cost, NEVER) - 0.5)
    first = ThresholdLayer(
        rows=rows,
        bias=bias,
        sign_zero=network.layers[number].sign_zero,
        name=f"flips in {network.layers[number].name}",
        bias_lo=bias,
        bias_hi=bias,
    )
    return derived(network, layers=(first, *network.layers[number + 1 :]), input_shape=(count,))


def derived(network: Network, **changes: object) -> Network:
    """Return a network with other layers, which has no file and no data box of its own."""
    nowhere: dict[str, object] = {"source": "<derived>", "kind": "memory", "metadata": {}}
    if "input_shape" in changes:
        nowhere |= {"input_lo": None, "input_hi": None, "pixel_step": None}
    return replace(network, **(nowhere | changes))  # type: ignore[arg-type]


def with_faults(network: Network, faults: Sequence[Fault]) -> Network:
    """Return the network in which these weights are flipped and these thresholds are stuck.

    Raises FaultError if a fault is not in the network, concerns a zero weight, or occurs twice.
    """
    if len({(f.layer, f.neuron, f.input) for f in faults}) < len(faults):
        raise FaultError("a fault occurs twice")
    if has_input_quantiser(network) and any(f.layer == 0 and f.input is not None for f in faults):
        raise FaultError("a fault is that of a weight of the input quantiser, which has none")
    layers, output = list(network.layers), network.output
    for number in timed(sorted({f.layer for f in faults})):
        mine = [f for f in faults if f.layer == number]
        if number == network.depth:
            weights = output.weights.copy()
            for fault in mine:
                _refuse_missing(fault, *weights.shape)
                if fault.input is None or not weights[fault.neuron, fault.input]:
                    raise FaultError("a fault of the output is not that of a weight")
                weights[fault.neuron, fault.input] *= -1
            output = replace(output, weights=weights)
        elif 0 <= number < network.depth:
            layers[number] = _faulty_layer(layers[number], mine)
        else:
            raise FaultError(f"a fault is in layer {number + 1}, which does not exist")
    return derived(network, layers=tuple(layers), output=output)


def _refuse_missing(fault: Fault, neurons: int, inputs: int) -> None:
    if not 0 <= fault.neuron < neurons or not 0 <= (fault.input or 0) < inputs:
        raise FaultError(f"layer {fault.layer + 1} has no such neuron or input as a fault names")


def _faulty_layer(layer: ThresholdLayer, faults: Sequence[Fault]) -> ThresholdLayer:
    data = layer.rows.data.copy()
    stuck = {f.neuron: f.sign for f in faults if f.input is None}
    for fault in timed(faults):
        _refuse_missing(fault, layer.size, layer.inputs)
        row = slice(layer.rows.indptr[fault.neuron], layer.rows.indptr[fault.neuron + 1])
        if fault.input is None:
            if fault.sign not in (-1, 1):
                raise FaultError("a stuck threshold has no sign")
            # A threshold out of reach is the same as no weights and a bias that is not 0.
            data[row] = 0
            continue
        place = np.flatnonzero(layer.rows.indices[row] == fault.input)
        if not place.size or not data[row][place[0]]:
            raise FaultError("a fault is that of a weight 0, which has no bit")
        data[row.start + place[0]] *= -1
    rows = without_zeros(with_data(layer.rows, data))
    made = replace(layer, rows=rows, convolution=None, flip=None)
    return _stuck(made, np.array(list(stuck)), np.array(list(stuck.values()))) if stuck else made


def _stuck(layer: ThresholdLayer, neurons: IntArray, signs: IntArray) -> ThresholdLayer:
    """Return the layer in which neurons without weights have constant signs."""
    bias = layer.bias.copy()
    bias[neurons] = signs
    if layer.on_from is None or layer.tie is None:
        low, high = (side.copy() for side in layer.enclosure)
        low[neurons] = high[neurons] = signs
        return replace(layer, bias=bias, bias_lo=low, bias_hi=high)
    on_from, tie = layer.on_from.copy(), layer.tie.copy()
    on_from[neurons], tie[neurons] = np.where(signs > 0, 0, 2), False
    return replace(layer, bias=bias, on_from=on_from, tie=tie)


# -- networks that are at least as free ----------------------------------------------------------


def with_wrong_signs(network: Network, number: int, count: int) -> Network:
    """Return a network that allows `count` wrong signs in a layer below the last one."""
    if not count:
        return network
    layer = network.layers[number + 1]
    slack = 2 * _largest_sums(layer, np.ones(layer.inputs), count).astype(np.int64)
    return _with_layer(network, number + 1, _widened(layer, slack))


def with_own_flips(
    network: Network, number: int, count: int, lo: FloatArray, hi: FloatArray
) -> Network:
    """Return a network that allows `count` flips of weights in every neuron of a layer.

    `lo` and `hi` are a box around the inputs of the network.
    """
    layer = network.layers[number]
    if not count:
        return network
    if layer.is_lattice:
        sums = _largest_sums(layer, np.ones(layer.inputs), count)
        return _with_layer(network, number, _widened(layer, 2 * sums.astype(np.int64)))
    sums = 2 * _largest_sums(layer, np.maximum(np.abs(lo), np.abs(hi)), count)
    # Room for the rounding errors of the products and of their sum.
    sums = sums * (1 + (count + 4) * 4 * UNIT) + np.where(sums > 0, 1e-300, 0.0)
    bias_lo, bias_hi = layer.enclosure
    lower = np.where(sums > 0, np.nextafter(bias_lo - sums, -np.inf), bias_lo)
    upper = np.where(sums > 0, np.nextafter(bias_hi + sums, np.inf), bias_hi)
    return _with_layer(network, number, replace(layer, bias_lo=lower, bias_hi=upper))


def with_raised_scores(network: Network, losses: Mapping[int, Fraction]) -> Network:
    """Return the network in which the scores of classes are raised by at least these numbers."""
    bias = network.output.bias.copy()
    for rival, loss in losses.items():
        bias[rival] = float_above(Fraction(float(bias[rival])) + loss)
    return derived(network, output=replace(network.output, bias=bias))


def _with_layer(network: Network, number: int, layer: ThresholdLayer) -> Network:
    layers = (*network.layers[:number], layer, *network.layers[number + 1 :])
    return derived(network, layers=layers)


def _widened(layer: ThresholdLayer, slack: IntArray) -> ThresholdLayer:
    return replace(layer, slack=slack if layer.slack is None else layer.slack + slack)


def _largest_sums(layer: ThresholdLayer, sizes: FloatArray, count: int) -> FloatArray:
    """Return for each row the sum of its `count` largest |w_i| sizes_i."""
    rows = layer.rows
    sums = np.zeros(layer.size)
    for j in timed(range(layer.size)):
        row = slice(rows.indptr[j], rows.indptr[j + 1])
        terms = np.abs(rows.data[row].astype(np.float64)) * sizes[rows.indices[row]]
        sums[j] = terms.sum() if count >= terms.size else -np.partition(-terms, count)[:count].sum()
    return sums
