"""Derived networks evaluated by plain loops over the raw numbers of their layers.

A layer above the first is x = +1 iff w.y >= on_from, where sums have the parity of on_from; at a
tie, on_from is the sum 0.  With a slack s, +1 occurs from s below, and -1 up to s above.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

import bnncert
from bnncert.model.layers import ThresholdLayer


def neuron_signs(layer: ThresholdLayer, number: int, below: Sequence[Any]) -> tuple[int, ...]:
    """Return the signs that one neuron may have."""
    total = Fraction(0)
    start, stop = int(layer.rows.indptr[number]), int(layer.rows.indptr[number + 1])
    for k in range(start, stop):
        total += Fraction(float(layer.rows.data[k])) * below[int(layer.rows.indices[k])]
    zero = layer.sign_zero
    if layer.on_from is None or layer.tie is None:
        low = high = Fraction(float(layer.bias[number]))
        if layer.bias_lo is not None and layer.bias_hi is not None:
            low, high = (Fraction(float(v[number])) for v in (layer.bias_lo, layer.bias_hi))
        if total + low > 0 or (total + low == 0 == total + high and zero == "plus"):
            return (1,)
        if total + high < 0 or (total + low == 0 == total + high and zero == "minus"):
            return (-1,)
        return (1, -1)
    start_of_plus, tied = int(layer.on_from[number]), bool(layer.tie[number])
    slack = 0 if layer.slack is None else int(layer.slack[number])
    end_of_minus = start_of_plus - 2
    if tied and zero == "minus":
        start_of_plus, end_of_minus = start_of_plus + 2, start_of_plus
    elif tied and zero == "either":
        end_of_minus = start_of_plus
    plus, minus = total >= start_of_plus - slack, total <= end_of_minus + slack
    assert plus or minus
    return (*((1,) if plus else ()), *((-1,) if minus else ()))


def derived_outcomes(network: bnncert.Network, point: Sequence[Any]) -> set[tuple[Fraction, ...]]:
    """Return all scores that a network may have at a point, without the factor of its scores."""
    states: set[tuple[Any, ...]] = {tuple(point)}
    for layer in network.layers:
        after: set[tuple[Any, ...]] = set()
        for state in states:
            after.update(product(*(neuron_signs(layer, j, state) for j in range(layer.size))))
        states = after
    output = network.output
    assert not np.any(output.error > 0)
    found = set()
    for state in states:
        scores = []
        for row, bias in zip(output.weights.tolist(), output.bias.tolist(), strict=True):
            score = Fraction(bias)
            for w, x in zip(row, state, strict=True):
                score += Fraction(w) * x
            scores.append(score)
        found.add(tuple(scores))
    return found


def in_units(scores: Sequence[int], network: bnncert.Network, factor: float) -> tuple[Any, ...]:
    """Return scores of `PlainNetwork` in the units of the raw numbers of a network."""
    return tuple(Fraction(s, 2) * Fraction(factor) / Fraction(network.output.gain) for s in scores)
