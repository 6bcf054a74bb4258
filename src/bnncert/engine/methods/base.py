"""The interface of methods, and the registry from which the command line and docs are generated."""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.stability import LayerBounds, stability
from bnncert.engine.replay import Replayer
from bnncert.engine.timing import PRESOLVE, Journal, LayerCount, Pulse, Step
from bnncert.engine.verdict import Counterexample, Status, TargetResult, best_of
from bnncert.errors import InputError, MissingExtraError
from bnncert.model.rationals import float_above
from bnncert.problem import Problem, Target

if TYPE_CHECKING:
    # Intervals decide many questions alone, before any of this is imported.
    from bnncert.engine.cluster import Cluster
    from bnncert.engine.presolve.pipeline import Presolved
    from bnncert.engine.relaxations.linear import Form
    from bnncert.engine.relaxations.moments.relaxation import Sparsity
    from bnncert.engine.search.trace import SearchRecord, Trace

Promise: TypeAlias = Literal["bound", "exact", "counterexample"]
Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """Settings of the methods; each method reads the ones that it names in `reads`.

    Attributes
    ----------
    seed
        Seed of all randomness.
    samples
        Points that `sample` draws (the paper uses 10,000).
    restarts
        Points that `attack` moves at once; None chooses by the size of the network.
    iterations
        Gradient steps before `attack` starts again from new points.
    form
        Encoding of `milp`: "lattice" (exact integers) or "soft" (the paper's margin).
    mode
        `milp` and `bab` decide "feasibility" of a violation or find the "optimum" of f.
    processes
        Processes that branch and bound may use on one target, and the search over sign patterns
        on all of them; 0 takes one for each core, at most eight.  A script
        that uses more than one must guard its main part with ``if __name__ == "__main__"``.
    cluster
        Workers of a Dask cluster that the search over sign patterns may use instead, see
        :func:`bnncert.engine.cluster.connected`.
    memory
        Gigabytes of open nodes of branch and bound, or of the search over sign patterns on several
        processes, above which the search is deepest first, which needs little memory.
    threads
        Threads of a solver; 0 lets it choose.
    solver
        Back end of the semidefinite relaxations: "structured" (those of order 1), "clarabel",
        "scs" or "mosek", for `sdp` also "low-rank".  Of `milp` and `minp`: "highs", "scip" or
        "gurobi".  None takes the method's own.
    cut_rounds
        Rounds of violated inequalities that `sdp` adds; None: two if they may decide the sign, and
        none for the mode "optimum".
    coupling
        Whether relaxations of `sdp` and `bab` contain what the input implies: "on", "off", or
        "auto" if that may decide the sign.  The solver "low-rank" never has it.
    sparsity
        The cliques of the moment relaxations: "layered" (the paper's theorem), "pairwise",
        "chordal" or "dense"; None takes the method's own.
    """

    seed: int = 0
    samples: int = 10_000
    restarts: int | None = None
    iterations: int = 60
    form: Form = "lattice"
    mode: Literal["feasibility", "optimum"] = "feasibility"
    processes: int = 1
    cluster: Cluster | None = None
    memory: float = 4.0
    threads: int = 0
    solver: str | None = None
    cut_rounds: int | None = None
    coupling: Literal["auto", "on", "off"] = "auto"
    sparsity: Sparsity | None = None

    def check(self, names: Mapping[str, str] | None = None) -> Options:
        """Return the options if all are in their ranges, or raise InputError.

        `names` are the names of fields that the user sees, if they differ.
        """
        for name, fits, expected in (
            ("seed", self.seed >= 0, "an integer >= 0"),
            ("samples", self.samples >= 1, "at least 1"),
            ("restarts", self.restarts is None or self.restarts >= 1, "at least 1"),
            ("memory", self.memory > 0, "a number of GB > 0"),
            ("processes", self.processes >= 0, "an integer >= 0"),
        ):
            if not fits:
                shown = (names or {}).get(name, name)
                raise InputError(f"{shown} is {getattr(self, name)}; expected {expected}")
        return self


@dataclass(frozen=True, eq=False)
class Context:
    """The options, limits and services of a run of a method."""

    options: Options
    deadline: Deadline
    replayer: Replayer
    progress: Progress | None = None
    #: The records of methods for a certificate; None if no certificate is wanted.
    record: SearchRecord | None = None
    #: The best answer so far to each target that was worked on, reported on Ctrl-C.
    so_far: dict[str, TargetResult] = field(default_factory=dict)
    #: The steps of the run, from which its timing is made.
    journal: Journal = field(default_factory=Journal)
    #: The newest bounds of the layers, with the problem that they are about.
    newest: list[tuple[Problem, tuple[LayerBounds, ...]]] = field(default_factory=list)

    @property
    def tracing(self) -> bool:
        """Whether a certificate is wanted."""
        return self.record is not None

    def record_trace(self, target: Target, trace: Trace) -> None:
        """Record the trace of a proved target, if a certificate is wanted."""
        if self.record is not None:
            self.record.traces[target.name] = trace

    def record_presolved(self, presolved: Presolved) -> Presolved:
        """Record the presolved network, if a certificate is wanted, and return it."""
        if self.record is not None:
            self.record.presolved = presolved
        return presolved

    def presolve(self, problem: Problem, deadline: Deadline | None = None) -> Presolved:
        """Presolve the network within the deadline, and note its time and the open neurons."""
        from bnncert.engine.presolve.pipeline import presolve

        since = self.deadline.elapsed()
        self.report(PRESOLVE, 0, len(problem.targets))
        try:
            made = presolve(problem.network, problem.region, deadline=deadline or self.deadline)
        finally:
            self.spend(PRESOLVE, since)
        self._note_bounds(problem, made.bounds)
        return made

    def intervals(self, problem: Problem) -> tuple[LayerBounds, ...]:
        """Return bounds by interval arithmetic within the deadline, and note the open neurons."""
        made = stability(problem.network, problem.region, self.deadline)
        self._note_bounds(problem, made)
        return made

    def known_bounds(self, problem: Problem) -> tuple[LayerBounds, ...]:
        """Return the newest bounds of a problem, or those of interval arithmetic."""
        for about, bounds in self.newest:
            if about.network is problem.network and about.region is problem.region:
                return bounds
        return self.intervals(problem)

    def spend(self, stage: str, since: float, target: str | None = None) -> None:
        """Note work without a result since a time of the deadline's clock; None: on all targets."""
        begin = self.deadline.start + since
        end = self.deadline.start + self.deadline.elapsed()
        self.journal.steps.append(Step(stage, target, begin, end))

    def _note_bounds(self, problem: Problem, bounds: tuple[LayerBounds, ...]) -> None:
        """Keep bounds in place of earlier ones, and note how many neurons are open."""
        self.newest[:] = [(problem, bounds)]
        self.journal.layers = tuple(
            LayerCount(b.state.size, int(np.count_nonzero(b.state == 0))) for b in bounds
        )

    def deciding(self) -> Context:
        """Return the context with the mode "feasibility"."""
        return replace(self, options=replace(self.options, mode="feasibility"))

    def report(self, text: str, done: int, total: int) -> None:
        """Report the progress."""
        if self.progress is not None:
            self.journal.counted = done, total
            self.progress(text, done, total)

    def pulse(self, text: str) -> Pulse | None:
        """Return what reports the closed share of a tree; None if nobody wants to know it."""
        if self.progress is None:
            return None

        def tell(closed: float) -> None:
            self.report(f"{text}, {100 * closed:.3g} % of the tree closed", *self.journal.counted)

        return Pulse(tell)

    def in_turn(self, problem: Problem, name: str) -> Iterator[Target]:
        """Yield the targets of a problem, reporting which one a method works on."""
        for number, target in enumerate(problem.targets):
            self.report(f"{name}: {target.name}", number, len(problem.targets))
            yield target

    def generator(self) -> np.random.Generator:
        """Return a fresh generator for the seed."""
        return np.random.default_rng(self.options.seed)

    def result(
        self,
        target: Target,
        stage: str,
        since: float,
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        counterexample: Counterexample | None = None,
        proved: bool = False,
        note: str = "",
        details: dict[str, Any] | None = None,
        trusted: str | None = None,
        tried: bool = True,
    ) -> TargetResult:
        """Return a result, and record it in `so_far`.

        `since` is the deadline's clock when work on the target began, `trusted` the solver on which
        a proof relies.  `tried` is False for a stage that works on all targets at once before any
        method is applied to one of them.  A counterexample of another target is left out.
        """
        if counterexample is not None and counterexample.target != target.name:
            counterexample = None
        if counterexample is not None:
            status: Status = "not_robust"
            upper = min(upper, float_above(counterexample.value))
        elif proved:
            status = "robust"
        else:
            status = "timeout" if self.deadline.passed() else "unknown"
        made = TargetResult(
            name=target.name,
            status=status,
            lower=lower,
            upper=upper,
            seconds=self.deadline.elapsed() - since,
            stage=stage,
            rival=target.rival,
            counterexample=counterexample,
            note=note,
            details=details or {},
            trusted=trusted if status == "robust" else None,
            tried=tried,
        )
        start, decided = self.deadline.start, status in ("robust", "not_robust")
        times = start + since, start + since + made.seconds
        self.journal.steps.append(
            Step(stage, target.name, *times, lower=lower, upper=upper, decided=decided)
        )
        before = self.so_far.get(target.name)
        self.so_far[target.name] = made if before is None else best_of(before, made)
        return made

    def exact_upper_bounds(
        self, targets: Sequence[Target], places: FloatArray, promised: FloatArray
    ) -> FloatArray:
        """Return upper bounds of F per target from points evaluated exactly inside the region.

        F of target k is about `promised[k]` at row k of `places`, in floating point.  The lowest
        points come first until the deadline passes.  Best effort: a missing upper bound does not
        change the verdict.
        """
        upper = np.full(len(targets), np.inf)
        seen: set[bytes] = set()
        for k in np.argsort(promised, kind="stable").tolist():
            if places[k].tobytes() in seen or (seen and self.deadline.passed()):
                continue
            seen.add(places[k].tobytes())
            values = self.replayer.value(targets, places[k])
            if values is not None:
                upper = np.minimum(upper, values)
        return upper


@dataclass(eq=False)
class JointWork:
    """What a search for all open targets of a region together is about.

    Such a search may be run in slices of time: results are kept.
    """

    presolved: Presolved
    problem: Problem
    targets: tuple[Target, ...]
    context: Context


class Method(ABC):
    """One way to work on a problem.  Subclasses register themselves with :func:`register`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    promises: ClassVar[tuple[Promise, ...]]
    regions: ClassVar[str] = "linf, l2, l1, l0, box, polytope"
    extra: ClassVar[str | None] = None
    package: ClassVar[str | None] = None
    #: The fields of :class:`Options` that it reads; another one on the command line is an error.
    reads: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        """Return one result for each target of the problem, in order."""

    @classmethod
    def available(cls) -> bool:
        """Whether the package that it needs is installed (without importing it)."""
        return cls.package is None or importlib.util.find_spec(cls.package) is not None


class Registry:
    """Methods by name; a method whose module is named ahead is imported on use."""

    def __init__(self, modules: Mapping[str, str] | None = None) -> None:
        self._modules = dict(modules or {})
        self._methods: dict[str, type[Method]] = {}

    def add(self, method: type[Method]) -> type[Method]:
        """Register a method class (usable as a decorator)."""
        self._methods[method.name] = method
        return method

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of all methods: those with a module ahead, then in order of registration."""
        return tuple(dict.fromkeys((*self._modules, *self._methods)))

    def _method(self, name: str) -> type[Method]:
        if name not in self._methods:
            importlib.import_module(f"bnncert.engine.methods.{self._modules[name]}")
        return self._methods[name]

    def all(self) -> tuple[type[Method], ...]:
        """Return every method, in the order of their names."""
        return tuple(map(self._method, self._names))

    def readers(self, field: str) -> tuple[str, ...]:
        """Return the names of the methods that read a field of the options."""
        return tuple(method.name for method in self.all() if field in method.reads)

    def make(self, name: str) -> Method:
        """Return a new instance of the method of that name."""
        if name not in self._names:
            raise InputError(f"no method {name!r}; expected one of {', '.join(self._names)}")
        method = self._method(name)
        if not method.available():
            raise MissingExtraError(
                f"method {name} needs {method.package}: pip install 'bnncert[{method.extra}]'"
            )
        return method()


#: The methods with their modules, in the order of tables.
REGISTRY = Registry(
    {
        "interval": "interval",
        "attack": "attack",
        "lp": "lp",
        "sdp": "reduced_sdp",
        "bab": "branch",
        "elimination": "elimination",
        "milp": "integer_programs",
        "propagation": "propagation",
        "auto": "auto",
        "learning": "learning",
        "minp": "integer_programs",
        "sample": "sample",
        "sdp-standard": "sdp_moments",
        "sdp-tight-plain": "sdp_moments",
        "sdp-tight": "sdp_moments",
        "sdp-tight-pairwise": "sdp_moments",
        "sdp-order2": "sdp_moments",
    }
)
register = REGISTRY.add
