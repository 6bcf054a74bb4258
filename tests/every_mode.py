"""One tiny question asked with both rules about ties and in both modes, against brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Literal, TypeAlias, get_args

from bnncert import Options
from bnncert.engine.verdict import Result
from bnncert.problem import Ties, robustness
from bnncert.questions.prover import solve
from tests.brute_force import TinyQuestion

Mode: TypeAlias = Literal["feasibility", "optimum"]

#: Methods that decide every question on a polyhedron or on few grid points, and others that decide
#: some.
COMPLETE = ("auto", "bab", "elimination", "learning", "milp", "minp", "propagation")

#: Those of them that decide only whether the property holds, and not by how much.
DECIDING = ("auto", "learning")

#: Little work for what has no end of its own.
SHORT_WORK = Options(restarts=8, iterations=5, samples=50, threads=1)

MODES: tuple[Mode, ...] = ("feasibility", "optimum")


def answer(
    question: TinyQuestion, method: str, ties: Ties, mode: Mode, limit: float | None = None
) -> Result:
    """Ask without a look at the centre first: the method has to find what is there itself."""
    options = replace(SHORT_WORK, mode=mode)
    problem = robustness(question.network, question.region, question.label, "all", ties)
    result = solve([problem], method, limit, options, None, check_centre=False)
    question.check(result, ties)
    return result


def agree_in_every_mode(question: TinyQuestion, method: str) -> Counter[str]:
    """Check bounds, statuses and, for complete methods, the minimum; return the statuses."""
    statuses: Counter[str] = Counter()
    for ties, mode in product(get_args(Ties), MODES):
        result = answer(question, method, ties, mode)
        statuses[result.status] += 1
        if method in COMPLETE:
            assert result.status == question.expected(ties), (ties, mode)
        if method in COMPLETE and method not in DECIDING and mode == "optimum":
            for target, minimum in question.targets(result):
                assert target.lower == target.upper == minimum
    return statuses
