"""Why a question is undecided, in three lines: the hardest class, the time, what to try next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bnncert.cli.command_question import CommandQuestion
from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Options
from bnncert.engine.verdict import Result, TargetResult
from bnncert.model.network import Network
from bnncert.problem import Problem, Ties, robustness
from bnncert.regions import Ball, InputSet, L0Ball

if TYPE_CHECKING:
    from bnncert.engine.timing import LayerCount

#: Seconds for the search of a smaller radius that intervals certify, after the time limit.
SEARCH_SECONDS = 0.5

#: The largest number of weights for which that search takes no longer.
MOST_WEIGHTS = 5_000_000

#: Digits of the radius that is recommended.
RADIUS_DIGITS = 3

#: Halvings of that search.
HALVINGS = 6

#: Seconds from which on a stage is listed.
SHORTEST = 0.01

#: The factor of the time limit that is recommended after a time-out.
MORE_TIME = 10

#: Stages whose relaxations may contain the input (--coupling).
RELAXATIONS = ("sdp", "bab")

#: The largest distance of an 8-bit input from its grid, as a share of the step.
OFF_GRID = 1e-3


@dataclass(frozen=True, eq=False)
class Asked:
    """The settings of a question, from which advice follows; a query has no ball."""

    method: str
    options: Options
    timeout: float | None
    ball: CommandQuestion | None = None
    ties: Ties = "violation"
    #: Whether the verdict is about real arithmetic, as the bound by intervals is.
    is_real: bool = True


def undecided_lines(asked: Asked, result: Result) -> list[str]:
    """Return three lines about a result without a verdict, and none for another one."""
    open_ = [t for t in result.targets if t.status in ("unknown", "timeout")]
    if result.status not in ("unknown", "timeout") or not open_:
        return []
    lines = [_hardest(open_, result.timing.layers), f"time: {time_text(result)}"]
    advice = _advice(asked, result)
    return [*lines, f"try: {'; '.join(advice)}"] if advice else lines


def _hardest(open_: list[TargetResult], layers: tuple[LayerCount, ...]) -> str:
    """Return the class that comes nearest to a violation, its bounds, and the open neurons."""
    import numpy as np

    hardest = min(open_, key=lambda t: (t.upper, t.lower))
    text = f"hardest of {len(open_)} open: {hardest.name}"
    if len(open_) == 1:
        text = f"open: {hardest.name}"
    text += f", margin {_between(hardest)}"
    if not np.isfinite([hardest.lower, hardest.upper]).any():
        text = f"{len(open_)} open, no bound is known"
    if layers:
        counts = ", ".join(f"{layer.open} of {layer.neurons}" for layer in layers)
        text += f"; open neurons per layer: {counts}"
    return text


def _between(target: TargetResult) -> str:
    """Say between which bounds a margin lies; a bound that is not known is left out."""
    import numpy as np

    from bnncert.engine.answer import lower_text, upper_text

    if not np.isfinite(target.upper):
        return f"at least {lower_text(target.lower)}"
    # A point has this margin; ties are no counterexamples with --ties robust.
    upper = upper_text(target.upper)
    if target.upper == 0 and target.rival is not None:
        upper += " (a tie)"
    if not np.isfinite(target.lower):
        return f"at most {upper}"
    return f"between {lower_text(target.lower)} and {upper}"


def time_text(result: Result) -> str:
    """Say which stages took the time, the longest first."""
    stages = sorted(result.timing.stages.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{name} {s:.2f} s" for name, s in stages if s >= SHORTEST or s == stages[0][1]
    )


def _advice(asked: Asked, result: Result) -> list[str]:
    """List what may decide the question, with the options to give."""
    advice = []
    if result.status == "timeout" and asked.timeout is not None:
        advice.append(f"more time (--timeout {MORE_TIME * asked.timeout:g})")
    if asked.method != "auto" and "exact" not in _promises(asked.method):
        advice.append("a complete method (--method auto)")
    question = asked.ball
    if question is not None and _has_integer_pixels(question.network, question.region):
        advice.append("integer pixels only (--grid 1px)")
    if asked.options.coupling == "auto" and any(s in result.timing.stages for s in RELAXATIONS):
        advice.append("the input in relaxations (--coupling on)")
    if question is not None and asked.is_real:
        certified = certified_by_intervals(question, asked.ties, Deadline(SEARCH_SECONDS))
        if certified is not None:
            advice.append(f"a smaller radius (--radius {certified} is certified by intervals)")
    return advice


def _promises(method: str) -> tuple[str, ...]:
    return next(m.promises for m in REGISTRY.all() if m.name == method)


def _has_integer_pixels(network: Network, region: InputSet) -> bool:
    """Whether the region has no grid, but its centre consists of integer pixels."""
    import numpy as np

    from bnncert.regions.radii import GRIDLESS

    step = network.pixel_step
    if region.norm in GRIDLESS:
        return False
    if region.grid is not None or step is None or network.input_lo is None:
        return False
    places = (region.center - network.input_lo) / step
    return bool(np.all(np.abs(places - np.rint(places)) <= OFF_GRID))


def certified_by_intervals(question: CommandQuestion, ties: Ties, deadline: Deadline) -> str | None:
    """Return the largest radius found, as --radius takes it, at which intervals prove robustness.

    The radii are shares  r = R k / 2^n  of the radius R of the question, or whole numbers if the
    norm is L0.
    """
    ball = question.region
    if not isinstance(ball, Ball | L0Ball):
        return None
    if sum(layer.weights.nnz for layer in question.network.layers) > MOST_WEIGHTS:
        return None
    is_l0 = ball.norm == "l0"
    cells = int(ball.radius) if is_l0 else 2**HALVINGS
    low, high = 0, cells
    while high - low > 1 and not deadline.passed():
        middle = (low + high) // 2
        radius = ball.stated_radius * (middle / cells)
        smaller = ball.with_radius(round(radius) if is_l0 else radius)
        problem = robustness(question.network, smaller, question.label, question.rivals, ties)
        low, high = (middle, high) if _is_proved(problem, deadline) else (low, middle)
    if low == 0:
        return None
    if is_l0:
        return str(low)
    return question.unit.below(ball.stated_radius * low / cells, RADIUS_DIGITS)


def _is_proved(problem: Problem, deadline: Deadline) -> bool:
    from bnncert.engine.methods.interval import interval_proof
    from bnncert.engine.presolve.stability import stability

    bounds = stability(problem.network, problem.region, deadline)
    return all(interval_proof(target, bounds[-1])[1] for target in problem.targets)
