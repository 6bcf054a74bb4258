"""Small networks, and their evaluation by plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.model.description import ElementwiseStep, ModelDescription, Normalise, SignZero, Stage
from bnncert.model.matrices import as_sparse
from bnncert.model.network import Network
from tests.strategies import few

CASES = few(20)


Array = npt.NDArray[Any]


SIGN_ZEROS: tuple[SignZero, ...] = ("plus", "minus", "either")


def ternary(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-1, 2, shape).astype(np.float64)


def dyadic(rng: np.random.Generator, *shape: int) -> Array:
    """Numbers with few bits, so that float sums of products are exact."""
    return rng.integers(-64, 65, shape) / 32.0


def naive_scores(
    weights: Sequence[Array], biases: Sequence[Array], point: Array, at_zero: int
) -> Array:
    x = point
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        values = [sum(w[j, i] * x[i] for i in range(x.size)) + b[j] for j in range(b.size)]
        x = np.array([1.0 if v > 0 else -1.0 if v < 0 else float(at_zero) for v in values])
    return np.asarray(weights[-1] @ x + biases[-1])


def exact_patterns(
    weights: Sequence[Array], biases: Sequence[Array], point: Sequence[Fraction], sign_zero: str
) -> set[tuple[tuple[int, ...], ...]]:
    """Return the signs of all layers that the raw weights allow, in rationals."""
    zero = {"plus": (1,), "minus": (-1,), "either": (1, -1)}[sign_zero]
    patterns: set[tuple[tuple[int, ...], ...]] = {()}
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        longer = set()
        for pattern in patterns:
            below: Sequence[Fraction | int] = pattern[-1] if pattern else point
            choices = []
            for row, c in zip(w.tolist(), b.tolist(), strict=True):
                v = sum((Fraction(p) * q for p, q in zip(row, below, strict=True)), Fraction(c))
                choices.append((1,) if v > 0 else (-1,) if v < 0 else zero)
            longer |= {(*pattern, signs) for signs in product(*choices)}
        patterns = longer
    return patterns


def exact_scores(w: Array, b: Array, signs: Sequence[int]) -> list[Fraction]:
    return [
        sum((Fraction(p) * s for p, s in zip(row, signs, strict=True)), Fraction(c))
        for row, c in zip(w.tolist(), b.tolist(), strict=True)
    ]


def as_tuples(patterns: Any) -> set[tuple[tuple[int, ...], ...]]:
    return {tuple(tuple(int(v) for v in layer) for layer in pattern) for pattern in patterns}


def stage(
    weights: Array,
    *steps: ElementwiseStep,
    sign_zero: SignZero | None = None,
    pool: Array | None = None,
) -> Stage:
    incidence = None if pool is None else sp.csr_array(pool)
    return Stage(as_sparse(weights), steps, "stage", sign_zero=sign_zero, pool=incidence)


def describe(*stages: Stage, inputs: int | None = None) -> Network:
    width = stages[0].weights.shape[1] if inputs is None else inputs
    return Network.from_description(ModelDescription(stages, (width,), source="file"))


def normalise(gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float = 0.0) -> Normalise:
    columns = np.broadcast_arrays(gamma, beta, mean, variance, epsilon)
    return Normalise(*(np.atleast_1d(np.array(c, dtype=np.float64)) for c in columns))
