r"""Programs over one moment matrix and many small local tables, and their dual points.

Over pseudo-moments M of z = (1, x) and a distribution p_j for every table j,

    min   l.z + sum_j sum_k value_jk p_jk
    s.t.  M >= 0, diag M = 1,   p_j >= 0, sum_k p_jk = 1,
          sum_k feature_jkf p_jk = <link_jf, M>            for every feature f >= 1 of table j,
          <pair_e, M> = 0                                  for every pair e,

where every link and every pair is a product of two linear forms in z, sym(a, b) = (ab' + ba')/2.
The last entries of the diagonal may share one equation, sum M_ii = their number, and one kappa.
The dual has free multipliers theta_jf, kappa and pi:

    max   sum_j theta_j0 + sum_i kappa_i
    s.t.  s_jk = value_jk - sum_f theta_jf feature_jkf >= 0,
          T = sym(e_0, l) + sum theta_jf link_jf - diag(kappa) - sum pi_e pair_e >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from bnncert.arrays import FloatArray, IntArray

#: The distance of the first T from the boundary of its cone.
MARGIN = 5.0


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables that all have the same features."""

    #: (tables, points); rows are padded by repeating a point.
    values: FloatArray
    #: (tables, points, F); feature 0 is the constant 1.
    features: FloatArray
    #: (tables, F - 1): the two vectors of Z whose product is the link of each other feature.
    left: IntArray
    right: IntArray
    #: (tables, size, size): the link of the only feature where that is a general matrix.
    forms: FloatArray | None = None

    @property
    def count(self) -> int:
        """The number of tables."""
        return int(self.values.shape[0])

    @property
    def links(self) -> int:
        """The number of features besides the constant."""
        return int(self.left.shape[1])


@dataclass(frozen=True, eq=False)
class StructuredProgram:
    """A program as above.

    `rows` are the general vectors of Z, followed by the unit vectors and by the pair vectors
    e_0 + sign e_i given by `pair_unit` and `pair_sign`.  The last `shared` entries of the diagonal
    have one multiplier together.  T is diagonal on the last `tips` entries of
    z, which no link or pair multiplies with each other.
    """

    linear: FloatArray
    rows: FloatArray
    tables: tuple[Tables, ...]
    pair_unit: IntArray
    pair_sign: FloatArray
    pair_left: IntArray
    pair_right: IntArray
    shared: int = 0
    tips: int = 0

    @property
    def size(self) -> int:
        """The size of the moment matrix."""
        return int(self.linear.size)

    @property
    def unknowns(self) -> int:
        """The size of the Newton system."""
        links = sum(t.count * t.links for t in self.tables)
        return int(links + self.size - max(self.shared - 1, 0) + self.pair_left.size)

    @cached_property
    def vectors(self) -> FloatArray:
        """The list Z: rows, unit vectors and pair vectors."""
        pairs = np.zeros((self.pair_unit.size, self.size))
        pairs[:, 0] = 1.0
        pairs[np.arange(pairs.shape[0]), self.pair_unit] = self.pair_sign
        return np.vstack([self.rows, np.eye(self.size), pairs])

    @cached_property
    def base(self) -> FloatArray:
        """The part sym(e_0, l) of T, which does not depend on the multipliers."""
        form = np.zeros((self.size, self.size))
        form[0, :] += self.linear / 2
        form[:, 0] += self.linear / 2
        return form

    @cached_property
    def link_slices(self) -> list[slice]:
        """The place of each family of tables in the list of all links."""
        ends = np.cumsum([0, *(t.count * t.links for t in self.tables)]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def by_family(self, values: FloatArray) -> list[FloatArray]:
        """Return values of all links as one array (tables, F - 1) for each family of tables."""
        places = zip(self.tables, self.link_slices, strict=True)
        return [values[where].reshape(t.links, t.count).T for t, where in places]

    @property
    def unit_from(self) -> int:
        """The place of the first unit vector in Z."""
        return int(self.rows.shape[0])


@dataclass(eq=False)
class StructuredMultipliers:
    """A dual point; entries of the diagonal that share a multiplier repeat it in `kappa`."""

    theta: list[FloatArray]
    kappa: FloatArray
    pi: FloatArray

    def signed(self) -> FloatArray:
        """Return the factor of every matrix of the program in T: links, diagonal, pairs."""
        links = [theta[:, 1:].T.ravel() for theta in self.theta]
        return np.concatenate([*links, -self.kappa, -self.pi])

    def moved(self, step: StructuredMultipliers, length: float) -> StructuredMultipliers:
        """Return self + length * step."""
        return StructuredMultipliers(
            [a + length * b for a, b in zip(self.theta, step.theta, strict=True)],
            self.kappa + length * step.kappa,
            self.pi + length * step.pi,
        )


def starting_point(program: StructuredProgram) -> StructuredMultipliers:
    """Return multipliers that are strictly feasible for every program."""
    theta = []
    for tables in program.tables:
        start = np.zeros((tables.count, tables.links + 1))
        start[:, 0] = tables.values.min(axis=1) - 1.0
        theta.append(start)
    # T is diagonally dominant by a margin that balances it with the slacks of the tables.
    reach = np.abs(program.linear) / 2
    kappa = -(MARGIN + reach)
    kappa[0] = -(MARGIN + float(reach.sum()))
    if program.shared:
        kappa[-program.shared :] = kappa[-program.shared :].min()
    return StructuredMultipliers(theta, kappa, np.zeros(program.pair_left.size))
