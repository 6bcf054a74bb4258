"""The objectives of all targets over the last signs of a circuit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bnncert.arrays import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class LinearObjectives:
    """f_k = constant_k + coefficients_k . x, each an objective of one target.

    A lower bound of f_k above `enough_k` proves objective k, and a target is excluded as soon as
    one of its objectives is proved.
    """

    coefficients: FloatArray
    constant: FloatArray
    #: The largest error of a computed lower bound, by rounding and by the objective's own error.
    slack: FloatArray
    enough: FloatArray
    #: The target of each objective, and the number of targets.
    target: IntArray
    targets: int

    @cached_property
    def absolute(self) -> FloatArray:
        """The absolute values of the coefficients."""
        return np.abs(self.coefficients)

    def values(self, signs: Float32Array) -> FloatArray:
        """Return lower bounds of the values (columns) at rows of signs, rounding included."""
        fixed = signs.astype(np.float64) @ self.coefficients.T
        return np.asarray(fixed + (self.constant - self.slack))

    def lower_bounds(self, states: Float32Array) -> FloatArray:
        """Return lower bounds of the values where some states are 0, which may be either sign."""
        fixed = states.astype(np.float64) @ self.coefficients.T
        loose = (states == 0).astype(np.float64) @ self.absolute.T
        return np.asarray(fixed - loose + (self.constant - self.slack))

    def open_targets(self, lower: FloatArray, goal: FloatArray) -> BoolArray:
        """Return which targets (columns) have no objective above its goal (which excludes them)."""
        proved = lower > goal
        excluded = np.zeros((lower.shape[0], self.targets), dtype=bool)
        for k, target in enumerate(self.target.tolist()):
            excluded[:, target] |= proved[:, k]
        return ~excluded

    def target_bounds(self, lower: FloatArray) -> FloatArray:
        """Return lower bounds of F = max_i f_i for each target (columns)."""
        bounds = np.full((lower.shape[0], self.targets), -np.inf)
        for k, target in enumerate(self.target.tolist()):
            np.maximum(bounds[:, target], lower[:, k], out=bounds[:, target])
        return bounds
