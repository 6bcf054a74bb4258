r"""Positive definite matrices in factorised form, for an interior-point method.

A matrix may be diagonal on its last indices, its *tips*,

    S = [ R  C'      ]        R - C' diag(1/d) C = F F',
        [ C  diag(d) ]

which holds for the slack of a layered network on the last layer and the input.  Only the Schur
complement of the tips is factorised, and a product with the inverse takes n (tips) (rest)
operations instead of n^3.  Small matrices without tips have a form of their own.
"""

from __future__ import annotations

import numpy as np
import scipy
from scipy.linalg import lapack

from bnncert.arrays import FloatArray

#: From this size on the largest step is computed by Lanczos iterations instead of all eigenvalues.
LANCZOS_FROM = 300

#: The largest number of Lanczos iterations, and their relative accuracy.
LANCZOS_STEPS, LANCZOS_ACCURACY = 60, 0.02


class Arrow:
    """The parts of a symmetric matrix that is diagonal on its last indices, the tips."""

    def __init__(self, matrix: FloatArray, tips: int) -> None:
        self.rest, self.tips = _parts(matrix.shape[0], tips)
        self.diagonal = np.diagonal(matrix)[self.tips]
        self.cross = matrix[self.tips, self.rest]
        self.core = matrix[self.rest, self.rest]

    def after(self, left: FloatArray) -> FloatArray:
        """Return left @ self."""
        tips, rest = left[:, self.tips], left[:, self.rest]
        out = np.empty_like(left)
        np.matmul(tips, self.cross, out=out[:, self.rest])
        out[:, self.rest] += rest @ self.core
        np.matmul(rest, self.cross.T, out=out[:, self.tips])
        out[:, self.tips] += tips * self.diagonal
        return out


class ArrowFactor:
    """The factor of a positive definite matrix with tips; raise LinAlgError for other matrices."""

    def __init__(self, matrix: FloatArray, tips: int = 0) -> None:
        self.size = matrix.shape[0]
        self.rest, self.tips = _parts(self.size, tips)
        self.diagonal = np.diagonal(matrix)[self.tips]
        core = matrix[self.rest, self.rest]
        if np.any(self.diagonal <= 0):
            raise scipy.linalg.LinAlgError("not definite on the tips")
        cross = matrix[self.tips, self.rest]
        self.slopes = cross / self.diagonal[:, None]
        if tips:
            core = core - cross.T @ self.slopes
            core = (core + core.T) / 2
        self.factor = scipy.linalg.cholesky(core, lower=True, check_finite=False)

    def inverse(self) -> FloatArray:
        """Return the inverse."""
        identity = np.eye(self.rest.stop)
        core = scipy.linalg.cho_solve((self.factor, True), identity, check_finite=False)
        core = (core + core.T) / 2
        if self.rest.stop == self.size:
            return np.asarray(core)
        cross = -self.slopes @ core
        out = np.empty((self.size, self.size))
        out[self.rest, self.rest] = core
        out[self.tips, self.rest] = cross
        out[self.rest, self.tips] = cross.T
        tips = -cross @ self.slopes.T
        tips[np.diag_indices(self.diagonal.size)] += 1.0 / self.diagonal
        out[self.tips, self.tips] = (tips + tips.T) / 2
        return out

    def divide(self, left: FloatArray) -> FloatArray:
        """Return left @ inverse."""
        tips = left[:, self.tips]
        rest = left[:, self.rest] - tips @ self.slopes
        core = scipy.linalg.cho_solve((self.factor, True), rest.T, check_finite=False).T
        out = np.empty_like(left)
        out[:, self.rest] = core
        np.matmul(core, -self.slopes.T, out=out[:, self.tips])
        out[:, self.tips] += tips / self.diagonal
        return out

    def whiten(self, columns: FloatArray) -> FloatArray:
        """Return L^-1 v for the factor S = L L' and one or several columns v."""
        tips = columns[self.tips]
        core = columns[self.rest] - self.slopes.T @ tips if tips.size else columns
        core = scipy.linalg.solve_triangular(self.factor, core, lower=True, check_finite=False)
        return np.concatenate([core, (tips.T / np.sqrt(self.diagonal)).T])

    def unwhiten(self, column: FloatArray) -> FloatArray:
        """Return L'^-1 v for one column v."""
        core = scipy.linalg.solve_triangular(
            self.factor, column[self.rest], lower=True, trans=1, check_finite=False
        )
        tips = column[self.tips] / np.sqrt(self.diagonal) - self.slopes @ core
        return np.concatenate([core, tips])

    def longest(self, step: FloatArray) -> float:
        """Return the largest a with S + a step >= 0, or a slightly smaller one."""
        if self.size < LANCZOS_FROM:
            whole = self.whiten(self.whiten(step).T)
            values = scipy.linalg.eigvalsh(
                (whole + whole.T) / 2, subset_by_index=[0, 0], check_finite=False
            )
            least = float(values[0])
        else:
            least = self._least(step)
        return np.inf if least >= -1e-13 else -1.0 / least

    def _least(self, step: FloatArray) -> float:
        """Return a lower estimate of the least eigenvalue of L^-1 step L'^-1 (Lanczos)."""
        vector = np.random.default_rng(0).standard_normal(self.size)
        vector /= np.linalg.norm(vector)
        basis = [vector]
        alpha: list[float] = []
        beta: list[float] = []
        least = -np.inf
        for count in range(1, LANCZOS_STEPS + 1):
            image = self.whiten(step @ self.unwhiten(basis[-1]))
            alpha.append(float(image @ basis[-1]))
            # All vectors are orthogonalised, which avoids spurious eigenvalues; they are few.
            known = np.array(basis)
            image -= known.T @ (known @ image)
            image -= known.T @ (known @ image)
            rest = float(np.linalg.norm(image))
            if count % 5 == 0 or rest < 1e-12:
                values, vectors = scipy.linalg.eigh_tridiagonal(alpha, beta)
                doubt = rest * abs(float(vectors[-1, 0]))
                least = float(values[0]) - doubt
                if doubt < LANCZOS_ACCURACY * max(abs(least), 1e-2) or rest < 1e-12:
                    break
            beta.append(rest)
            basis.append(image / rest)
        return least


class InverseFactor:
    """L^-1 of a small definite matrix L L', without overhead; LinAlgError for other matrices."""

    def __init__(self, matrix: FloatArray) -> None:
        factor, info = lapack.dpotrf(matrix, lower=1)
        # What is not a number reaches the last entry.
        if info or not np.isfinite(factor[-1, -1]):
            raise scipy.linalg.LinAlgError("not definite")
        self._inverse, info = lapack.dtrtri(factor, lower=1, overwrite_c=1)
        if info:
            raise scipy.linalg.LinAlgError("not definite")

    def inverse(self) -> FloatArray:
        """Return the inverse."""
        return np.ascontiguousarray(self._inverse.T @ self._inverse)

    def longest(self, step: FloatArray) -> float:
        """Return the largest a with S + a step >= 0."""
        whole = self._inverse @ step @ self._inverse.T
        values, _, _, _, info = lapack.dsyevr(
            (whole + whole.T) / 2, compute_v=0, range="I", il=1, iu=1, overwrite_a=1
        )
        if info:
            raise scipy.linalg.LinAlgError("no eigenvalue")
        return np.inf if values[0] >= -1e-13 else float(-1.0 / values[0])


def _parts(size: int, tips: int) -> tuple[slice, slice]:
    return slice(0, size - tips), slice(size - tips, size)
