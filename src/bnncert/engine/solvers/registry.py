"""The conic back ends by name."""

from __future__ import annotations

import importlib.util

from bnncert.engine.solvers.clarabel_ import ClarabelSolver
from bnncert.engine.solvers.conic import ConicSolver
from bnncert.engine.solvers.mosek_ import MosekSolver
from bnncert.engine.solvers.scs_ import ScsSolver
from bnncert.errors import InputError, MissingExtraError

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
