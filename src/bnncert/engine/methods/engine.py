"""The methods as engines: each works on what is open for a while, and can go on later.

An engine asks for presolve if it needs it, and pays for it with its own time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Protocol

from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.methods.base import Context, Method
from bnncert.engine.methods.open_question import OpenQuestion
from bnncert.engine.presolve.pipeline import Presolved
from bnncert.engine.search.learned_clauses import LearnedClauses
from bnncert.engine.verdict import TargetResult
from bnncert.problem import Target

#: Seconds of the overhead of a first step.
STEP = 2e-3


class Engine(ABC):
    """A method that works on the open targets in slices of time."""

    method: ClassVar[type[Method]]
    #: Whether its verdict relies on a solver and so has no certificate.
    trusts_solver: ClassVar[bool] = False
    #: Whether it is unlikely to find anything soon.
    stalled: bool = False

    def __init__(self, question: OpenQuestion) -> None:
        self.question = question

    @property
    def context(self) -> Context:
        """The options and limits of the question."""
        return self.question.context

    @property
    def is_endless(self) -> bool:
        """Whether nobody waits for it when all others have nothing more to find."""
        return False

    @abstractmethod
    def first_slice(self) -> float:
        """About the seconds of a first useful step; infinite if it does not suit the problem."""

    @abstractmethod
    def work(self, end: Deadline) -> bool:
        """Work until about `end`; False if there is nothing more to find."""

    def finish(self) -> None:  # noqa: B027 (most engines enter everything while they work)
        """Enter what is known when the time is over."""

    def report(self) -> None:
        """Tell what is worked on."""
        everyone = len(self.question.problem.targets)
        self.context.report(self.method.name, everyone - len(self.question.open), everyone)

    def limited(self, end: Deadline) -> Context:
        """Return the context of a slice."""
        return replace(self.context, deadline=end)


class JointSearch(Protocol):
    """A search for all open targets together, which can be interrupted and continued."""

    targets: tuple[Target, ...]

    def drop(self, proved: set[str]) -> None:
        """Remove targets that are proved elsewhere."""

    def exchange(self, learned: LearnedClauses) -> None:
        """Give clauses to other searches of the region, and take theirs."""

    def run(self, deadline: Deadline) -> HasStatus:
        """Search until the deadline."""

    def leave_trace(self) -> None:
        """Record the proof for a certificate, if there is one."""

    def result(self, target: Target, name: str, since: float, lower: float) -> TargetResult:
        """Return the result of the search so far for one target."""


class HasStatus(Protocol):
    """What a search tells: it is "interrupted" until it is decided."""

    @property
    def status(self) -> str:
        """What is known."""


class JointEngine(Engine):
    """A search for all open targets together."""

    _search: JointSearch | None = None

    @abstractmethod
    def start(self, context: Context) -> JointSearch | None:
        """Begin the search; None if it does not suit the problem."""

    def work(self, end: Deadline) -> bool:
        """Continue the search."""
        question, since = self.question, self.context.deadline.elapsed()
        self.report()
        if self._search is None:
            try:
                self._search = self.start(self.context.deciding())
            except OutOfTimeError:
                return False
        search = self._search
        if search is None:
            return False
        open_ = {t.name for t in question.open}
        search.drop({t.name for t in question.problem.targets} - open_)
        search.exchange(question.learned)
        outcome = search.run(end)
        search.exchange(question.learned)
        search.leave_trace()
        for target in search.targets:
            lower = question.results[target.name].lower
            question.enter(search.result(target, self.method.name, since, lower))
        return outcome.status == "interrupted" and end.passed()


class TargetEngine(Engine):
    """A method for one target at a time; each has an equal share of a slice."""

    def work(self, end: Deadline) -> bool:
        """Work on every open target; what the end of its share interrupts is worked on again."""
        presolved, late = self.question.presolved(), False
        if presolved is None:
            return False
        pending = self.pending()
        for number, target in enumerate(pending):
            if self.context.deadline.passed():
                return False
            self.context.report(f"{self.method.name}: {target.name}", number, len(pending))
            own = self.limit(target, end.within(end.remaining() / (len(pending) - number)))
            since = self.context.deadline.elapsed()
            after = self.decide(target, presolved, self.limited(own))
            if after is None:
                self.context.spend(self.method.name, since, target.name)
                continue
            self.question.enter(after)
            late = late or (own.passed() and after.status not in ("robust", "not_robust"))
            if self.question.is_over:
                return False
            if end.passed():
                return late or number + 1 < len(pending)
        return late

    def limit(self, target: Target, equal: Deadline) -> Deadline:
        """Return the limit of the work on a target; `equal` is that of an equal share."""
        return equal

    def pending(self) -> list[Target]:
        """Return the targets to work on now."""
        return list(self.question.open)

    @abstractmethod
    def decide(self, target: Target, presolved: Presolved, context: Context) -> TargetResult | None:
        """Work on one target; None if the method is not meant for it."""
