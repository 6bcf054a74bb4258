"""Whether the compiled functions for the nodes of trees are loaded.

Most trees have very few nodes, and are finished before numba is imported.  The functions are loaded
(or compiled, on their first use on a machine) in a thread, while a tree that has some nodes goes on
with the plain form.
"""

from __future__ import annotations

import numpy as np

from bnncert.deadline import NO_DEADLINE
from bnncert.engine.search.patterns.enumeration import Compilation
from bnncert.engine.solvers.structured import Iteration, solve_structured
from bnncert.engine.solvers.structured_program import StructuredProgram, Tables

#: The relaxations of a tree after which it is worth it.
WORTH_IT = 4

NODES = Compilation()


def is_ready(relaxations: int) -> bool:
    """Whether the functions are loaded; a tree with several relaxations begins to load them."""
    return relaxations >= WORTH_IT and NODES.is_ready(_compile, NO_DEADLINE, patience=0.0)


def node_iteration(program: StructuredProgram, relaxations: int) -> type[Iteration]:
    """Return the fastest form of the solver for a node that is ready."""
    if not is_ready(relaxations):
        return Iteration
    # Imported on use: numba takes a third of a second to import.
    from bnncert.engine.solvers.compiled_iteration import CompiledIteration, is_small

    return CompiledIteration if is_small(program) else Iteration


def _compile() -> None:
    """Solve  min |x_1 + x_2| - 2 x_1 x_2  over signs that are not both positive."""
    from bnncert.engine.reachability.nearest_loop import nearest
    from bnncert.engine.solvers.compiled_iteration import CompiledIteration

    u = np.array([[-2.0, 0.0, 2.0]])
    one, own = np.array([[1, 0]]), np.array([[0, 0]])
    table = Tables(np.abs(u), np.stack([np.ones_like(u), u, u * u], axis=2), one, own)
    form = np.zeros((1, 3, 3))
    form[0, 1, 2] = form[0, 2, 1] = 1.0
    nothing = np.zeros((1, 1), dtype=np.int64)
    ends = np.array([[-2.0, 2.0]])
    cut = Tables(-ends, np.stack([np.ones_like(ends), ends], axis=2), nothing, nothing, form)
    program = StructuredProgram(
        linear=np.zeros(3),
        rows=np.array([[0.0, 1.0, 1.0]]),
        tables=(table, cut),
        pair_unit=np.array([1, 2]),
        pair_sign=np.array([1.0, 1.0]),
        pair_left=np.array([4]),
        pair_right=np.array([5]),
    )
    solve_structured(program, NO_DEADLINE, kind=CompiledIteration)
    row, ends = np.ones((1, 1)), np.ones(1)
    nearest(row, ends, -ends, ends, 0.0, 1.0, 1, np.zeros(1))
