"""The conic back ends by name."""

from __future__ import annotations

import importlib.util

from bnncert.errors import InputError, MissingExtraError
from bnncert.solvers.clarabel_ import ClarabelSolver
from bnncert.solvers.conic import ConicSolver
from bnncert.solvers.mosek_ import MosekSolver
from bnncert.solvers.scs_ import ScsSolver

CONIC_SOLVERS: dict[str, type[ConicSolver]] = {
    solver.name: solver for solver in (ClarabelSolver, ScsSolver, MosekSolver)
}


def conic_solver(name: str) -> ConicSolver:
    """Return the back end of that name; raise if its package is not installed."""
    if name not in CONIC_SOLVERS:
        raise InputError(f"no solver {name!r}; expected one of {', '.join(CONIC_SOLVERS)}")
    solver = CONIC_SOLVERS[name]
    if importlib.util.find_spec(solver.package) is None:
        raise MissingExtraError(
            f"solver {name} needs {solver.package}: pip install 'bnncert[{name}]'"
        )
    return solver()
