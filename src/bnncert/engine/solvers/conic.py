r"""Semidefinite programs in conic form, and the interface of their solvers.

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

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.processes import killable_call

#: Up to this `ConicProgram.work` an iteration takes far less than a second, so that a solver keeps
#: its time limit.
QUICK_WORK = 3e7

#: Seconds to receive an answer from another process.
RESERVE = 0.2

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

    @property
    def work(self) -> float:
        """The approximate number of operations of one iteration."""
        blocks = np.array(self.blocks, dtype=np.float64)
        # The eigenvalues of the blocks, and a factor with dense columns for their entries.
        return float((10 * blocks**3).sum() + (blocks**4).sum() / 4 + 100 * self.matrix.nnz)

    @property
    def projection_seconds(self) -> float:
        """The approximate time of a projection to the cone."""
        return 4e-9 * float((np.array(self.blocks, dtype=np.float64) ** 3).sum())


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """Primal y and dual z as a solver returned them."""

    status: ConicStatus
    primal: FloatArray
    dual: FloatArray
    iterations: int = 0


class ConicSolver(ABC):
    """One back end."""

    name: ClassVar[str]
    package: ClassVar[str]

    def solve(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time; without an answer both vectors are zero."""
        none = np.zeros(program.cost.size), np.zeros(program.right.size)
        if deadline.passed():
            return ConicSolution("limit", *none)
        if program.work <= QUICK_WORK or not np.isfinite(deadline.remaining()):
            return self.solve_here(program, deadline)
        # The computation of a bound from the answer takes time, too.
        left = deadline.remaining()
        sooner = deadline.within(left - min(RESERVE + program.projection_seconds, left / 2))
        found = killable_call(_solve, (type(self), program, sooner), sooner)
        if found is None:
            return ConicSolution("limit" if sooner.passed() else "failed", *none)
        assert isinstance(found, ConicSolution)
        return found

    @abstractmethod
    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve in this process; the solver may exceed the time limit."""


def _solve(solver: type[ConicSolver], program: ConicProgram, deadline: Deadline) -> ConicSolution:
    return solver().solve_here(program, deadline)


def unpack(vector: FloatArray, n: int) -> FloatArray:
    """Return the symmetric matrix of a block."""
    matrix = np.zeros((n, n))
    # The columns of the upper triangle are the rows of the lower one.
    lower = np.tril_indices(n)
    scaled = np.where(lower[0] == lower[1], vector, vector / np.sqrt(2.0))
    matrix[lower] = scaled
    matrix[(lower[1], lower[0])] = scaled
    return matrix


def pack(matrix: FloatArray) -> FloatArray:
    """Return the vector of a block, the inverse of :func:`unpack`."""
    lower = np.tril_indices(matrix.shape[0])
    scale = np.where(lower[0] == lower[1], 1.0, np.sqrt(2.0))
    return np.asarray(matrix[lower] * scale)
