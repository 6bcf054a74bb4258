"""The compiled form of the structured solver makes the steps of the plain form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.deadline import Deadline
from bnncert.engine.relaxations.reduced.input_cuts import InputCuts
from bnncert.engine.relaxations.reduced.problem import ReducedProblem
from bnncert.engine.relaxations.reduced.relaxation import relax_reduced
from bnncert.engine.search.tree import NODES, WORTH_IT, _compile, node_iteration
from bnncert.engine.solvers import structured_loop
from bnncert.engine.solvers.compiled_iteration import CompiledIteration, is_small
from bnncert.engine.solvers.definite import ArrowFactor, InverseFactor
from bnncert.engine.solvers.structured import Iteration, StructuredSolution, solve_structured
from bnncert.engine.solvers.structured_program import StructuredProgram
from tests.engine.solvers.test_structured import make, problems, true_minimum
from tests.strategies import few

NEVER = Deadline(None)


def node(seed: int, signs: int, tables: int, cuts: int = 0) -> ReducedProblem:
    """Return a problem of the size of a node: sums of some signs, pairs, and inequalities."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 2, (tables, signs))
    rows[:, 0] = 1
    values = [np.where(np.arange(np.abs(r).sum() + 1) > np.abs(r).sum() / 2, 2, 0) for r in rows]
    pairs = [(2 * k, 2 * k + 3) for k in range(0, signs - 2, 3)]
    problem = make(rng.integers(-1, 2, signs), rows, values, pairs)
    forms = rng.standard_normal((cuts, signs + 1, signs + 1))
    forms = forms + forms.transpose(0, 2, 1) + 3 * np.eye(signs + 1)
    return replace(problem, cuts=InputCuts(forms, ())) if cuts else problem


def both(
    program: StructuredProgram, iterations: int, *, second: bool = True
) -> tuple[StructuredSolution, StructuredSolution]:
    """Solve a program in both forms."""
    kinds = Iteration, CompiledIteration
    plain, compiled = (
        solve_structured(program, NEVER, iterations=iterations, second=second, kind=kind)
        for kind in kinds
    )
    return plain, compiled


def assert_equal(plain: StructuredSolution, compiled: StructuredSolution) -> None:
    """Compare the course and the primal solution to 1e-9."""
    assert plain.status == compiled.status
    assert np.allclose(plain.history, compiled.history, rtol=1e-9, atol=1e-9)
    assert np.allclose(plain.moments, compiled.moments, rtol=1e-9, atol=1e-9)
    for a, b in zip(plain.probabilities, compiled.probabilities, strict=True):
        assert a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)


def assert_equal_multipliers(plain: StructuredSolution, compiled: StructuredSolution) -> None:
    """Compare the multipliers, which are unique where no equation follows from the others."""
    ours, theirs = plain.multipliers, compiled.multipliers
    for a, b in zip(ours.theta, theirs.theta, strict=True):
        assert a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)
    assert np.allclose(ours.kappa, theirs.kappa, rtol=1e-9, atol=1e-9)
    assert np.allclose(ours.pi, theirs.pi, rtol=1e-9, atol=1e-9)


@given(problem=problems())
@few(20)
def test_small_problems_with_gates_and_pairs(problem: ReducedProblem) -> None:
    program = relax_reduced(problem).program
    assert is_small(program)
    assert_equal(*both(program, 4))


@pytest.mark.parametrize(("signs", "tables"), [(25, 110), (60, 90)])
@pytest.mark.parametrize("cuts", [0, 1, 2])
def test_nodes(signs: int, tables: int, cuts: int) -> None:
    found = both(relax_reduced(node(1, signs, tables, cuts)).program, 7)
    assert_equal(*found)
    assert_equal_multipliers(*found)


def test_nodes_without_a_second_correction() -> None:
    program = relax_reduced(node(6, 30, 60, 1)).program
    once, twice = both(program, 12, second=False), both(program, 12)
    assert_equal(*once)
    assert once[0].history[1:] != twice[0].history[1:]


@given(problem=problems(), limit=st.integers(1, 20))
@few(20)
def test_every_bound_is_below_the_minimum(problem: ReducedProblem, limit: int) -> None:
    relaxation = relax_reduced(problem)
    found = solve_structured(relaxation.program, NEVER, iterations=limit, kind=CompiledIteration)
    assert relaxation.bound(found.multipliers) <= true_minimum(problem)


def test_an_optimum_is_that_of_the_plain_form() -> None:
    plain, compiled = both(relax_reduced(node(2, 20, 40, 1)).program, 60)
    assert compiled.status == plain.status == "optimal"
    assert compiled.dual == pytest.approx(plain.dual, abs=1e-6)


def test_large_or_unusual_programs_have_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    program = relax_reduced(node(3, 10, 8)).program
    first = program.tables[0]
    crossed = replace(first, left=first.right, right=np.roll(first.right, 1, axis=0))
    other = replace(program, tables=(crossed, *program.tables[1:]))
    assert is_small(program) and not is_small(other)
    assert not is_small(replace(program, shared=2))
    monkeypatch.setattr("bnncert.engine.solvers.compiled_iteration.MOST_SIGNS", 5)
    assert not is_small(program)


def test_a_matrix_that_is_not_definite_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        InverseFactor(np.diag([1.0, -1.0]))
    with pytest.raises(np.linalg.LinAlgError):
        InverseFactor(np.full((2, 2), np.nan))


def test_factors_agree() -> None:
    rng = np.random.default_rng(4)
    root, step = rng.standard_normal((2, 12, 12))
    matrix, step = root @ root.T + np.eye(12), step + step.T
    small, plain = InverseFactor(matrix), ArrowFactor(matrix)
    assert np.allclose(small.inverse(), plain.inverse(), atol=1e-12)
    assert small.longest(step) == pytest.approx(plain.longest(step), rel=1e-10)
    assert small.longest(matrix) == np.inf


def test_what_is_compiled_in_advance_is_what_nodes_need() -> None:
    """Another type of an argument would be compiled in the middle of a search."""
    _compile()
    names = ("equations", "combine", "slacks", "newton", "without_constants", "constants")
    loops = [getattr(structured_loop, name) for name in names]
    known = [len(f.signatures) for f in loops]
    for cuts in (0, 1):
        solve_structured(
            relax_reduced(node(5, 12, 9, cuts)).program, NEVER, iterations=3, kind=CompiledIteration
        )
    assert [len(f.signatures) for f in loops] == known == [1] * len(loops)


def test_a_tree_of_few_nodes_does_not_wait_for_the_compiler() -> None:
    program = relax_reduced(node(3, 10, 8)).program
    assert node_iteration(program, WORTH_IT - 1) is Iteration
    node_iteration(program, WORTH_IT)
    assert NODES.wait(120.0)
    assert node_iteration(program, WORTH_IT) is CompiledIteration
    assert node_iteration(replace(program, shared=2), WORTH_IT) is Iteration
