r"""Semidefinite programs in conic form, and what every back end returns.

    min c.y   s.t.   s = b - A y,   s in K,   K = R_+^m x S_+^{n_1} x S_+^{n_2} x ...

A positive semidefinite block occupies n(n+1)/2 rows: the upper triangle column by column, entries
off the diagonal times sqrt(2), so that the inner product of two blocks is that of the vectors.  The
dual is  max -b.z  s.t.  A'z + c = 0,  z in K.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from bnncert.deadline import Deadline
from bnncert.formats.description import FloatArray

ConicStatus: TypeAlias = Literal["solved", "inaccurate", "infeasible", "limit", "failed"]


@dataclass(frozen=True, eq=False)
class ConicProgram:
    """A program as above; `blocks` are the sizes n_1, n_2, .. of the semidefinite blocks."""

    cost: FloatArray
    matrix: Any
    right: FloatArray
    nonnegative: int
    blocks: tuple[int, ...]

    def block_rows(self) -> list[slice]:
        """Return the rows of each semidefinite block."""
        rows, start = [], self.nonnegative
        for n in self.blocks:
            rows.append(slice(start, start + n * (n + 1) // 2))
            start = rows[-1].stop
        return rows


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """Primal y, dual z and how well they satisfy the equations (recomputed, not reported)."""

    status: ConicStatus
    primal: FloatArray
    dual: FloatArray
    iterations: int
    seconds: float
    primal_residual: float
    dual_residual: float
    gap: float


def solution(
    program: ConicProgram,
    status: ConicStatus,
    primal: FloatArray,
    dual: FloatArray,
    iterations: int,
    seconds: float,
) -> ConicSolution:
    """Return a solution with its residuals recomputed from the program."""
    slack = program.right - program.matrix @ primal
    violation = float(np.maximum(-slack[: program.nonnegative], 0.0).max(initial=0.0))
    for n, rows in zip(program.blocks, program.block_rows(), strict=True):
        violation = max(violation, -float(np.linalg.eigvalsh(unpack(slack[rows], n))[0]))
    dual_residual = float(np.abs(program.matrix.T @ dual + program.cost).max(initial=0.0))
    gap = float(program.cost @ primal + program.right @ dual)
    return ConicSolution(status, primal, dual, iterations, seconds, violation, dual_residual, gap)


class ConicSolver(ABC):
    """One back end."""

    name: ClassVar[str]
    package: ClassVar[str]

    @abstractmethod
    def solve(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the time that is left."""


def unpack(vector: FloatArray, n: int) -> FloatArray:
    """Return the symmetric matrix of a block."""
    matrix = np.zeros((n, n))
    # Column by column of the upper triangle is row by row of the lower one.
    lower = np.tril_indices(n)
    scaled = np.where(lower[0] == lower[1], vector, vector / np.sqrt(2.0))
    matrix[lower] = scaled
    matrix[(lower[1], lower[0])] = scaled
    return matrix


def pack(matrix: FloatArray) -> FloatArray:
    """Undo :func:`unpack`."""
    lower = np.tril_indices(matrix.shape[0])
    scale = np.where(lower[0] == lower[1], 1.0, np.sqrt(2.0))
    return np.asarray(matrix[lower] * scale)
