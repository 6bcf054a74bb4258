r"""The product of two networks: both side by side, with shared inputs, as one ordinary network.

Its scores are those of the first network and then those of the second.  Neurons of either network
that are equal or opposite functions of the inputs, because they have the same weights and threshold
up to a factor, are one neuron of the product; constant neurons and those that no score depends on
are left out.  (If the weights of the scores are not integers, sums of them would be rounded; the
last layer then has all neurons of each network.)  The signs of the network with fewer layers pass
through neurons with one input.

An irrational threshold of a first layer is known as the two floats that enclose it.  Neurons with
the same enclosure are one neuron, so the product says nothing about inputs whose sum lies between
the floats; neither does a network on its own (`Network.exact_patterns`).  In the product of two
copies of one network (`copies`) only a neuron and its own copy are one.

Where sign(0) may be either, each neuron decides on its own, and two neurons of one network are
never one.  A neuron and its own copy decide alike: if the sums of both are 0, both have the same
sign c.  So they are one neuron if they are the same function; else, above the first layer, they
read c as a further sign, which is free (x = +1 iff w.y + c >= p + 1; the sums w.y have steps of 2).
Neurons of two networks that are equal up to their ties decide alike on request (`alike`); the k-th
such neuron of one network then belongs to the k-th one of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.errors import InputError
from bnncert.kernel.budget import timed
from bnncert.kernel.rules.canonical_neurons import (
    CanonicalNeurons,
    canonical_lattice,
    first_layer_neurons,
    lattice_neurons,
)
from bnncert.model.description import SignZero
from bnncert.model.layers import OutputLayer, ThresholdLayer
from bnncert.model.matrices import as_sparse, csr_matrix
from bnncert.model.network import Network

#: The place of a neuron that is constant.
CONSTANT = -1

#: Which neurons decide alike where sign(0) may be either: none, a neuron and its own copy, or all
#: that both networks have.
Ties: TypeAlias = Literal["own", "copies", "alike"]


@dataclass(frozen=True, eq=False)
class Places:
    """Neurons of a layer of one network as neurons of the product."""

    #: The number in the product's layer, or CONSTANT.
    place: IntArray
    #: The sign of neuron i is sign_i x_place(i), or sign_i if the neuron is constant.
    sign: IntArray

    def substitution(self, width: int) -> tuple[Any, IntArray]:
        """Return (S, t) such that the signs are S z + t for the signs z of `width` neurons."""
        count = self.place.size
        fixed = self.place == CONSTANT
        indptr = np.concatenate([[0], np.cumsum(~fixed)])
        matrix = csr_matrix(self.sign[~fixed], self.place[~fixed], indptr, (count, width))
        return matrix, np.where(fixed, self.sign, 0)


@dataclass(frozen=True, eq=False)
class Product:
    """Two networks as one."""

    #: The product; score i of the first network is its score i, score j of the second one its score
    #: ``first.classes + j``.
    network: Network
    #: The two networks.
    first: Network
    second: Network
    #: For each layer the number of neurons that both networks use.
    shared: tuple[int, ...]


def product_network(
    first: Network,
    second: Network,
    *,
    columns: npt.ArrayLike | None = None,
    box: tuple[FloatArray, FloatArray] | None = None,
    copies: bool = False,
    alike: bool = False,
    enclosed_apart: bool = False,
) -> Product:
    """Return the product of two networks.

    Raises InputError if inputs do not fit, or if sign(0) may be either in one first layer but not
    in the other.

    Parameters
    ----------
    columns
        The input of the product that each input of the second network reads (default: the input
        with the same number).  Input i of the first network is always input i of the product;
        larger numbers are further inputs.
    box
        Bounds of the inputs between which the product is used: a first-layer neuron with one sign
        between them is left out.  Without a box the product is valid for all inputs.
    copies
        Whether neuron j of both first layers has the same threshold, because one network is a copy
        of the other.  An irrational threshold is then equal to no other one, and ties of neuron j
        have the same sign in both.  (If sign(0) may be either in layer 2 but not in layer 1, its
        ties are independent, so that more than the scores of both copies occurs.)
    alike
        Whether neurons that both networks have decide their ties alike, if sign(0) may be either.
    enclosed_apart
        Whether a neuron with an enclosed threshold is never one with another (except its own copy):
        inside the enclosure, signs of neurons with equal enclosures may differ.
    """
    if (first.layers[0].sign_zero == "either") != (second.layers[0].sign_zero == "either"):
        raise InputError(
            "sign(0) may be either in the first layer of one network but not of the other; state "
            "the same sign(0) for both"
        )
    other = _columns(first, second, columns)
    inputs = max(first.inputs, int(other.max(initial=-1)) + 1)
    exact = _adds_exactly(first.output) and _adds_exactly(second.output)
    last = max(first.depth, second.depth) - 1
    layers: list[_United] = []
    width = inputs
    for number in timed(range(last + 1)):
        if number == 0:
            used = np.arange(first.inputs), other
            sides = [
                first_layer_neurons(net.layers[0], numbers, inputs, box)
                for net, numbers in zip((first, second), used, strict=True)
            ]
        else:
            before = zip((first, second), layers[-1].places, strict=True)
            sides = [_next(net, number, places, width) for net, places in before]
        ties: Ties = "copies" if copies else "alike" if alike else "own"
        apart = number == last and not exact
        layers.append(_unite(sides, ties, apart=apart, enclosed_apart=enclosed_apart))
        if copies and number:
            layers[-2:] = _with_choices(layers[-2], layers[-1], sides)
        width = layers[-1].size
    output, useful = _output(first.output, second.output, layers[-1].places, width)
    kept = _needed(layers, useful)
    made = tuple(
        _threshold_layer(layer, number, kept[number - 1] if number else None, kept[number])
        for number, layer in enumerate(layers)
    )
    shared = tuple(
        int(np.count_nonzero(_used_by_both(layer) & keep))
        for layer, keep in zip(layers, kept, strict=True)
    )
    return Product(_network(first, second, other, inputs, made, output), first, second, shared)


def _columns(first: Network, second: Network, columns: npt.ArrayLike | None) -> IntArray:
    """Return the input of the product for each input of the second network."""
    if columns is None:
        if first.inputs != second.inputs:
            raise InputError(
                f"the first network has {first.inputs} inputs, the second one {second.inputs}"
            )
        return np.arange(second.inputs)
    array = np.asarray(columns, dtype=np.int64).reshape(-1)
    if array.size != second.inputs:
        raise InputError(
            f"columns has {array.size} values; expected one for each of the {second.inputs} "
            "inputs of the second network"
        )
    if np.any(array < 0) or np.unique(array).size != array.size:
        raise InputError("columns has a number below 0 or one number twice")
    return array


@dataclass(frozen=True, eq=False)
class _United:
    """A layer of the product before the neurons are left out that no score depends on."""

    weights: Any
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    tied: BoolArray
    places: tuple[Places, ...]

    @property
    def size(self) -> int:
        """The number of neurons."""
        return int(self.low.size)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return int(self.weights.shape[1])


def _is_whole(rows: Any) -> bool:
    return bool(np.issubdtype(rows.dtype, np.integer))


def _stacked(parts: Sequence[Any]) -> Any:
    """Return rows below each other, as integers if all of them are."""
    from scipy.sparse import vstack

    kind = np.int64 if all(_is_whole(part) for part in parts) else np.float64
    return vstack([part.astype(kind) for part in parts], format="csr")


def _unite(
    sides: Sequence[CanonicalNeurons], ties: Ties, *, apart: bool, enclosed_apart: bool
) -> _United:
    """Give every neuron its place; neurons with the same key have the same place.

    With `apart`, neurons of one network have different places, and none is constant.  With "copies"
    a neuron that has ties or an enclosed threshold is equal to the one with the same number only,
    and with `enclosed_apart` one with an enclosed threshold to no other.
    """
    known: dict[Hashable, int] = {}
    count = 0
    chosen: list[IntArray] = []
    places: list[Places] = []
    for side in sides:
        is_own = ties == "own" and side.tied.any()
        is_own = is_own or (enclosed_apart and ties != "copies" and np.any(side.low != side.high))
        if places and not is_own and side.equals(sides[0]):
            # Large layers that both networks have are not looked up neuron by neuron again.
            chosen.append(np.zeros(0, dtype=np.int64))
            places.append(places[0])
            continue
        constant = np.zeros_like(side.constant) if apart else side.constant
        place = np.full(constant.size, CONSTANT, dtype=np.int64)
        sign = np.where(constant != 0, side.sign * constant, side.sign)
        new: list[int] = []
        seen: Counter[Hashable] = Counter()
        for j in timed(np.flatnonzero(constant == 0).tolist()):
            key, tied = side.key(j), bool(side.tied[j])
            if ties == "copies" and (tied or side.low[j] != side.high[j]):
                # Of two copies with opposite sums, ties do not have opposite signs.
                key = key, j, int(side.sign[j])
            elif enclosed_apart and side.low[j] != side.high[j]:
                key = key, j, len(places)
            elif ties == "own" and tied:
                key = key, len(places)
            if apart or tied:
                seen[key] += 1
            found = known.setdefault((key, seen[key]), count)
            if found == count:
                count += 1
                new.append(j)
            place[j] = found
        chosen.append(np.array(new, dtype=np.int64))
        places.append(Places(place, sign))
    pick = list(zip(sides, chosen, strict=True))
    return _United(
        _stacked([side.rows[new] for side, new in pick]),
        np.concatenate([side.low[new] for side, new in pick]),
        np.concatenate([side.high[new] for side, new in pick]),
        np.concatenate([side.tied[new] for side, new in pick]),
        tuple(places),
    )


def _with_choices(
    before: _United, layer: _United, sides: Sequence[CanonicalNeurons]
) -> tuple[_United, _United]:
    """Give every neuron and its copy the same sign at ties: a free neuron of the layer before.

    Neurons of a first layer are free only if sign(0) may be either in all of it.
    """
    from scipy.sparse import csr_array, hstack

    one, two = (places.place for places in layer.places)
    numbers = np.flatnonzero(sides[0].tied & sides[1].tied & (one != two))
    first = not np.issubdtype(before.low.dtype, np.integer)
    if not numbers.size or (first and not before.tied.all()):
        return before, layer
    count = numbers.size
    free = np.zeros(count, dtype=before.low.dtype)
    before = replace(
        before,
        weights=_stacked([before.weights, _empty(count, before.width)]),
        low=np.concatenate([before.low, free]),
        high=np.concatenate([before.high, free]),
        tied=np.concatenate([before.tied, np.ones(count, dtype=bool)]),
    )
    places = np.concatenate([one[numbers], two[numbers]])
    signs = np.concatenate([side.sign[numbers] for side in sides])
    start, tied = layer.low.copy(), layer.tied.copy()
    start[places] += 1
    tied[places] = False
    columns = np.tile(np.arange(count), 2)
    further = csr_array((signs, (places, columns)), shape=(layer.size, count))
    weights = hstack([layer.weights, further], format="csr")
    return before, replace(layer, weights=weights, low=start, high=start, tied=tied)


def _next(net: Network, number: int, before: Places, width: int) -> CanonicalNeurons:
    """Return the neurons of a layer above the first, or of one that passes the signs on."""
    substitution, shift = before.substitution(width)
    if number < net.depth:
        return lattice_neurons(net.layers[number], substitution, shift)
    count = before.place.size
    # A constant neuron has an empty row; x = +1 iff t >= 1 is its sign.
    start = 1 - shift
    return canonical_lattice(substitution, start, np.zeros(count, dtype=bool))


def _output(
    one: OutputLayer, two: OutputLayer, places: Sequence[Places], width: int
) -> tuple[OutputLayer, BoolArray]:
    """Return the scores as functions of the product's last layer, and which signs they use."""
    parts = [_scores(o, p, width) for o, p in zip((one, two), places, strict=True)]
    weights = np.concatenate([part[0] for part in parts])
    used = np.any(weights != 0, axis=0)
    # A layer that no score depends on has one constant neuron.
    kept = weights[:, used] if used.any() else np.zeros((weights.shape[0], 1))
    output = OutputLayer(
        kept,
        np.concatenate([part[1] for part in parts]),
        np.concatenate([one.weight_error, two.weight_error]),
        np.concatenate([one.bias_error, two.bias_error]),
        np.concatenate([one.group, two.group + int(one.group.max()) + 1]),
        gain_is_one=one.gain_is_one and two.gain_is_one,
    )
    return output, used


def _scores(output: OutputLayer, places: Places, width: int) -> tuple[FloatArray, FloatArray]:
    """Return weights and biases of the scores, which :func:`_adds_exactly` makes exact."""
    substitution, shift = places.substitution(width)
    weights = np.asarray((substitution.T @ output.weights.T).T, dtype=np.float64)
    # Adding zero turns -0.0 into 0.0.
    return weights + 0.0, output.bias + output.weights @ shift + 0.0


def _adds_exactly(output: OutputLayer) -> bool:
    """Whether sums of weights and biases of a score are floats."""
    whole = all(np.all(a == np.rint(a)) for a in (output.weights, output.bias))
    size = np.abs(output.weights).sum(axis=1) + np.abs(output.bias)
    return bool(whole and size.max() < 2.0**52)


def _needed(layers: Sequence[_United], useful: BoolArray) -> list[BoolArray]:
    """Return for each layer the neurons that a score depends on."""
    kept = [useful]
    for layer in reversed(layers[1:]):
        used = np.zeros(layer.width, dtype=bool)
        used[layer.weights[np.flatnonzero(kept[0])].indices] = True
        kept.insert(0, used)
    return kept


def _used_by_both(layer: _United) -> BoolArray:
    used = np.zeros((2, layer.size), dtype=bool)
    for side, places in zip(used, layer.places, strict=True):
        side[places.place[places.place != CONSTANT]] = True
    return np.asarray(used[0] & used[1])


def _threshold_layer(
    layer: _United, number: int, inputs: BoolArray | None, kept: BoolArray
) -> ThresholdLayer:
    """Return a layer of the product with the neurons and inputs that are kept."""
    rows = layer.weights[np.flatnonzero(kept)]
    low, high, tied = layer.low[kept], layer.high[kept], layer.tied[kept]
    if inputs is not None:
        rows = rows[:, np.flatnonzero(inputs)] if inputs.any() else _empty(rows.shape[0], 1)
    if not kept.any():
        # One constant neuron takes the place of a layer that no score depends on.
        rows = _empty(1, rows.shape[1])
        low = high = np.array([1.0]) if number == 0 else np.array([0])
        tied = np.zeros(1, dtype=bool)
    sign_zero: SignZero = "either" if tied.any() else "plus"
    name = f"layer {number + 1} of both networks"
    if number == 0:
        return ThresholdLayer(
            rows=_narrow(rows),
            bias=low + (high - low) / 2,
            sign_zero=sign_zero,
            name=name,
            bias_lo=np.asarray(low, dtype=np.float64),
            bias_hi=np.asarray(high, dtype=np.float64),
            fixed_sign_zero=True,
        )
    return ThresholdLayer(
        rows=_narrow(rows),
        bias=np.where(tied, -low, 1 - low).astype(np.float64),
        sign_zero=sign_zero,
        name=name,
        on_from=low,
        tie=tied,
        fixed_sign_zero=True,
    )


def _empty(rows: int, columns: int) -> Any:
    return as_sparse(np.zeros((rows, columns), dtype=np.int64))


def _narrow(rows: Any) -> Any:
    """Return rows in the smallest of the types that layers have."""
    largest = float(np.abs(rows.data).max(initial=0))
    if not _is_whole(rows):
        return rows
    return rows.astype(np.int8 if largest <= 127 else np.int32)


def _network(
    first: Network,
    second: Network,
    columns: IntArray,
    inputs: int,
    layers: tuple[ThresholdLayer, ...],
    output: OutputLayer,
) -> Network:
    lo, hi = _data_box(first, second, columns, inputs)
    plain = inputs == first.inputs
    steps = {net.pixel_step for net in (first, second)}
    return Network(
        layers,
        output,
        first.input_shape if plain else (inputs,),
        lo,
        hi,
        source=f"{first.source} and {second.source}",
        kind="product",
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
        pixel_step=steps.pop() if len(steps) == 1 else None,
    )


def _data_box(
    first: Network, second: Network, columns: IntArray, inputs: int
) -> tuple[FloatArray | None, FloatArray | None]:
    """Return the intersection of the data boxes, or (None, None) if an input has no bounds."""
    lo, hi = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    for net, used in ((first, np.arange(first.inputs)), (second, columns)):
        if net.input_lo is not None:
            lo[used] = np.maximum(lo[used], net.input_lo)
        if net.input_hi is not None:
            hi[used] = np.minimum(hi[used], net.input_hi)
    bounded = bool(np.all(np.isfinite(lo)) and np.all(np.isfinite(hi)))
    return (lo, hi) if bounded else (None, None)
