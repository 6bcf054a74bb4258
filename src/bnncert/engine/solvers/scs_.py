"""SCS: operator splitting for conic programs (https://www.cvxgrp.org/scs)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bnncert.deadline import Deadline
from bnncert.engine.solvers.conic import ConicProgram, ConicSolution, ConicSolver, ConicStatus

_STATUS: dict[int, ConicStatus] = {1: "solved", 2: "inaccurate", -2: "infeasible", -7: "infeasible"}


def _lower_order(n: int) -> np.ndarray:
    """Return the position in a block of each entry of the lower triangle by columns, as in SCS."""
    j, i = np.triu_indices(n)
    return np.asarray(i * (i + 1) // 2 + j, dtype=np.int64)


class ScsSolver(ConicSolver):
    """A first-order method, which is less accurate and needs less memory."""

    name = "scs"
    package = "scs"

    def solve_here(self, program: ConicProgram, deadline: Deadline) -> ConicSolution:
        """Solve within the remaining time."""
        import scs

        order = [np.arange(program.nonnegative)]
        for n, rows in zip(program.blocks, program.block_rows(), strict=True):
            order.append(rows.start + _lower_order(n))
        permutation = np.concatenate(order)
        left = deadline.remaining()
        options = {"verbose": False, "eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 20_000}
        if np.isfinite(left):
            options["time_limit_secs"] = max(left, 1e-3)
        answer = scs.SCS(
            {
                "A": sp.csc_matrix(sp.csr_array(program.matrix)[permutation]),
                "b": program.right[permutation],
                "c": program.cost,
            },
            {"l": program.nonnegative, "s": list(program.blocks)},
            **options,
        ).solve()
        dual = np.zeros(program.right.size)
        dual[permutation] = np.nan_to_num(answer["y"])
        return ConicSolution(
            _STATUS.get(int(answer["info"]["status_val"]), "limit"),
            np.nan_to_num(np.array(answer["x"])),
            dual,
            int(answer["info"]["iter"]),
        )
