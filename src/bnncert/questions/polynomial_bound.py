"""Bounds of quadratic functions of inputs and scores over a region.

    f = network_input(0) * network_input(0) - score(net, 0) * score(net, 0) + 0.1

is a polynomial over the inputs (variables 0 .. n_0 - 1) and the signs of the last layer
(n_0 .. n_0 + n_L - 1).  :func:`bound_polynomial` bounds its minimum from below by a moment
relaxation and from above by sampling.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from bnncert.deadline import Deadline
from bnncert.engine.methods.base import REGISTRY, Options
from bnncert.engine.methods.sdp_moments import MomentMethod
from bnncert.engine.presolve.reduction import reduce_target
from bnncert.engine.presolve.stability import stability
from bnncert.engine.relaxations.moments.polynomial import Polynomial
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.problem import Objective, Target
from bnncert.regions import Region


@dataclass(frozen=True)
class PolynomialBound:
    """Bounds lower <= min f <= upper over a region.

    Attributes
    ----------
    lower
        The bound of the relaxation.
    upper
        The smallest value at sampled points, in floating point.
    method, seconds
        The relaxation, and the time for both bounds.
    note
        A remark on the lower bound, for example that the time limit has ended the solver.
    """

    lower: float
    upper: float
    method: str
    seconds: float
    note: str = ""


def network_input(index: int) -> Polynomial:
    """Return an input as a polynomial.

    Parameters
    ----------
    index
        The number of the input, from 0.

    Returns
    -------
    Polynomial
        The polynomial, which can be added and multiplied with others and with numbers.

    Examples
    --------
    >>> from bnncert.questions.polynomial_bound import network_input
    >>> print(1 - network_input(0) * network_input(1))
    1 - x0 x1
    """
    return Polynomial.affine({index: 1.0})


def last_sign(network: Network, neuron: int) -> Polynomial:
    """Return the sign of a neuron of the last hidden layer as a polynomial.

    Parameters
    ----------
    network
        The network; its signs are the variables after its inputs.
    neuron
        The number of the neuron, from 0.

    Returns
    -------
    Polynomial
        The polynomial.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.questions.polynomial_bound import last_sign
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> print(last_sign(net, 1))
    x3
    """
    return Polynomial.affine({network.inputs + neuron: 1.0})


def score(network: Network, index: int) -> Polynomial:
    """Return a score as a polynomial in the signs of the last layer.

    Parameters
    ----------
    network
        The network.
    index
        The number of the score, from 0.

    Returns
    -------
    Polynomial
        The polynomial.

    Raises
    ------
    InputError
        If the score does not exist, or its weights are not known exactly.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.questions.polynomial_bound import score
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> print(score(net, 0))
    x2 + x3
    """
    output = network.output
    if np.any(output.error > 0) or not output.gain_is_one:
        raise InputError("polynomials of scores need scores with exact weights")
    if not 0 <= index < network.classes:
        raise InputError(f"score {index} does not exist; the network has {network.classes}")
    row = output.weights[index]
    used = np.flatnonzero(row)
    coefficients = {network.inputs + int(j): float(row[j]) for j in used}
    return Polynomial.affine(coefficients, float(output.bias[index]))


def bound_polynomial(
    network: Network,
    region: Region,
    polynomial: Polynomial,
    *,
    method: str = "sdp-tight",
    timeout: float | None = None,
    options: Options | None = None,
) -> PolynomialBound:
    """Bound the minimum over a region of a quadratic polynomial of inputs and last-layer signs.

    Parameters
    ----------
    network, region
        The network, and the inputs that count.
    polynomial
        The function, made of :func:`network_input`, :func:`last_sign`, :func:`score` and numbers.
    method
        A moment relaxation; its name begins with "sdp-".
    timeout
        Seconds for the lower bound; None sets no limit.
    options
        Settings of the method; `seed` and `samples` are those of the upper bound.

    Returns
    -------
    PolynomialBound
        A lower bound of the minimum, and a value that the function takes.

    Raises
    ------
    InputError
        If the method is not a moment relaxation, or the polynomial names unknown variables.

    Examples
    --------
    The score is 2 and the input a at least 0.3 in this ball, so a^2 + score^2 is at least 4.09:

    >>> import bnncert
    >>> from bnncert.questions.polynomial_bound import network_input, score
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> a, y = network_input(0), score(net, 0)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    >>> found = bnncert.bound_polynomial(net, ball, a * a + y * y, timeout=60)
    >>> round(found.lower, 3)
    4.09
    """
    started, deadline = time.monotonic(), Deadline(timeout)
    engine = REGISTRY.make(method)
    if not isinstance(engine, MomentMethod):
        raise InputError(f"method {method} does not bound polynomials; use one of the sdp-* ones")
    chosen = options or Options()
    bounds = stability(network, region)
    used = [v - network.inputs for v in polynomial.variables if v >= network.inputs]
    mask = np.zeros(network.layers[-1].size)
    if used and max(used) >= mask.size:
        raise InputError(f"the polynomial names variable {max(polynomial.variables)}")
    mask[used] = 1.0
    reduced = reduce_target(network, bounds, Target("f", (Objective(mask, 0.0),)))
    lower, note = engine.bound(reduced, region, polynomial, chosen, deadline)
    points = region.sample(np.random.default_rng(chosen.seed), chosen.samples)
    points[0] = region.center
    if region.values is not None:
        points = points[[region.contains(point) for point in points]]
    signs = network.last_signs(points).astype(np.float64)
    values = polynomial.values(np.concatenate([points, signs], axis=1))
    upper = float(np.min(values, initial=np.inf))
    return PolynomialBound(lower, upper, method, time.monotonic() - started, note)
