"""The one prover of all questions: it decides parts and keeps their certificates for the claim.

A question states a claim, which follows from parts: ordinary verifications of derived networks on
convex regions.  Its strategy says which part comes next; the prover decides it within the limits of
the question, and at the end writes the claim with the certificates of the parts that it needs.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from bnncert.deadline import TIME_IS_UP, Deadline
from bnncert.engine.answer import AnswerT, Interrupted
from bnncert.engine.method_run import run_method
from bnncert.engine.methods import REGISTRY, Method, Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import (
    UnwritableError,
    file_identity,
    folder_for,
    replacing,
    writing_for,
)
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.problem.problem import Arithmetic
from bnncert.problem.vnnlib.query import Specification

if TYPE_CHECKING:
    from rich.console import Console

    from bnncert.kernel.container import Section

#: Called with an answer before a certificate is written.
Announce: TypeAlias = Callable[[Result], None]

#: The limit of a part after that of the question: a limit has to be positive, and with this one a
#: method returns what it knows at once.
LEAST_SECONDS = 1e-9


class UnwrittenError(UnwritableError):
    """The certificate of an answer cannot be written; `answer` is the answer without it."""

    def __init__(self, error: UnwritableError, answer: Any) -> None:
        super().__init__(str(error))
        self.path, self.reason, self.answer = error.path, error.reason, answer


@dataclass(frozen=True, eq=False)
class Effort:
    """How a question is answered: the keywords of all questions, those of :func:`bnncert.verify`.

    If the certificate cannot be written, an UnwrittenError has the answer.
    """

    method: str = "auto"
    timeout: float | None = None
    options: Options | None = None
    progress: Progress | None = None
    certificate: str | os.PathLike[str] | None = None
    sign_zero: SignZero | None = None


@dataclass(eq=False)
class Prover:
    """Decides the parts of one question, and keeps their certificates while it is open.

    Raises InputError at once for an unknown method, options outside their range, and a certificate
    that would replace the file of a network.
    """

    #: The settings of the question.
    effort: Effort
    #: The networks that the question is about.
    networks: Sequence[Network]
    #: That of :func:`bnncert.verify`.
    arithmetic: Arithmetic = "real"
    #: The limit of the whole question, which began with the prover.
    deadline: Deadline = field(init=False)
    options: Options = field(init=False)
    engine: Method = field(init=False)
    #: Why the last proof has no certificate; empty if it has one.
    reason: str = ""
    #: Why a file of the certificate cannot be written: after it, none is.
    unwritten: UnwritableError | None = None
    _folder: Path | None = None
    #: The certificates of parts by name, and the number of files.
    _proofs: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.engine = REGISTRY.make(self.effort.method)
        self.options = (self.effort.options or Options()).check()
        self.deadline = Deadline(self.effort.timeout)
        for network in self.networks:
            refuse_own_file(self.path, network, several=len(self.networks) > 1)

    @contextmanager
    def opened(self) -> Iterator[Prover]:
        """Open the folder of the certificates of parts, if one is requested."""
        with nullcontext() if self.path is None else folder_for(self.path) as self._folder:
            yield self

    @property
    def path(self) -> Path | None:
        """The file of the certificate; None if none is requested."""
        return None if self.effort.certificate is None else Path(self.effort.certificate)

    @property
    def wants_certificate(self) -> bool:
        """Whether the answer should have a certificate, and its files can be written."""
        return self.effort.certificate is not None and self.unwritten is None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep the error if files cannot be written, as on a full disk: the search goes on."""
        try:
            with writing_for(self.path):
                yield
        except UnwritableError as error:
            self.unwritten = error

    def decide(
        self,
        problems: Problem | Sequence[Problem],
        seconds: float = math.inf,
        *,
        name: str = "",
        whole: bool = False,
        stated: Network | None = None,
        method: str | None = None,
        prefix: str = "",
        strict: bool = False,
        check_centre: bool = True,
        query: Specification | None = None,
        announce: Announce | None = None,
    ) -> Result:
        """Decide one part: a problem, or several that are decided together.

        Without any problem the answer is "robust".  It has the name of a file as `certificate` if
        one is requested and was written.  A part has one only if it is proved and has a name, that
        for :meth:`finish`; it replaces that of an earlier proof of the same name.

        Parameters
        ----------
        seconds, method, prefix
            The limit of this part besides that of the question, another method than that of the
            question, and the beginning of the text of its progress.
        whole
            Whether the part is the whole question, whose certificate is that of the part.
        stated
            The network as its file defines it, if the problem is about a widened one.
        strict, check_centre
            Those of :func:`bnncert.engine.method_run.run_method`.
        query
            The query that the problems come from, in whose terms counterexamples are replayed.
        announce
            Called with the answer before the certificate is written.
        """
        started, limit = time.monotonic(), min(seconds, self.deadline.remaining())
        parts = [problems] if isinstance(problems, Problem) else problems
        engine = self.engine if method is None else REGISTRY.make(method)
        if not parts:
            empty = Result("robust", (), 0.0, engine.name, notes=("the input region is empty",))
            if announce is not None:
                announce(empty)
            return empty
        file = self.path if whole else self._next_file(name)
        run = run_method(
            engine,
            parts,
            None if limit == math.inf else max(limit, LEAST_SECONDS),
            self.options,
            self.told(prefix),
            check_centre=check_centre,
            strict=strict,
            accept=None if query is None else query.holds,
            only_float32=self.arithmetic == "float32",
            tracing=file is not None,
        )
        result = run.result
        if announce is not None:
            announce(result)
        if file is None or not (whole or result.status == "robust"):
            # A claim follows from proofs; its counterexamples are stated by the question itself.
            return result
        network = parts[0].network if stated is None else stated
        # Imported on use, because most verifications do not write a certificate.
        from bnncert.proofs.claims import write_verdict

        how: dict[str, Any] = {"arithmetic": self.arithmetic, "sign_zero": self.effort.sign_zero}
        with self.writing():
            result = write_verdict(file, run.problem, network, result, run.context, **how)
        if self.unwritten is not None and whole:
            raise UnwrittenError(self.unwritten, result)
        total = time.monotonic() - started
        timing = result.timing.spent("certificate", total - result.seconds)
        result = replace(result, seconds=total, timing=timing)
        if whole:
            return result
        if result.certificate is not None:
            self._proofs[name], self.reason = file, ""
        else:
            self._proofs.pop(name, None)
            self.reason = result.notes[-1] if result.notes else ""
        return result

    def _next_file(self, name: str) -> Path | None:
        """Choose a file for a part that has a name, if the answer is to have a certificate."""
        if not name or self._folder is None or self.unwritten is not None:
            return None
        self._count += 1
        return self._folder / f"{self._count}.bnncert"

    def certified(self, result: Result) -> Result:
        """Return a result; a proof without a certificate, where one is requested, as unknown.

        So a certificate shows all that an answer says.
        """
        if self.wants_certificate and result.status == "robust" and result.certificate is None:
            return replace(result, status="unknown")
        return result

    @property
    def is_late(self) -> bool:
        """Whether the last proof has no certificate because its share of the time was too short."""
        return self.reason.endswith(TIME_IS_UP)

    def has(self, name: str) -> bool:
        """Whether there is a certificate that this part is proved."""
        return name in self._proofs

    def file(self, name: str) -> Path:
        """Return a file for a part that the question itself writes, such as a counterexample."""
        file = self._next_file(name)
        assert file is not None
        self._proofs[name] = file
        return file

    def tell(self, text: str, done: int = 0, total: int = 0) -> None:
        """Report what the question is doing, if anyone wants to know."""
        if self.effort.progress is not None:
            self.effort.progress(text, done, total)

    def told(self, prefix: str) -> Progress | None:
        """Let the texts of a part's progress say first, by a prefix, which part it is."""
        show = self.effort.progress
        if show is None or not prefix:
            return show
        return lambda text, done, total: show(prefix + text, done, total)

    def finish(self, claim: Section | None = None, names: Iterable[str] = ()) -> str:
        """Write the certificate: a claim with its parts in order, or one part; return its name."""
        assert self.path is not None
        files = [self._proofs[name] for name in names]
        if claim is not None:
            from bnncert.proofs.claims import write_claim

            write_claim(self.path, claim, files)
        else:
            (part,) = files
            with replacing(self.path) as file, part.open("rb") as source:
                shutil.copyfileobj(source, file)
        return str(self.path)


class Search(ABC, Generic[AnswerT]):
    """The strategy of a question: which part comes next; it has an answer at any time."""

    prover: Prover

    @abstractmethod
    def run(self) -> None:
        """Decide parts until the question is answered or its time is up."""

    @abstractmethod
    def answer(self) -> AnswerT:
        """Return what is known now, without a certificate."""

    def certified(self, found: AnswerT) -> AnswerT:
        """Write the certificate; return the answer that names it or says why there is none."""
        return found

    def with_certificate(self, found: AnswerT) -> AnswerT:
        """Return the answer with its certificate, if one is requested and can be written."""
        with self.prover.writing():
            if self.prover.wants_certificate:
                return self.certified(found)
        return found

    def interrupted(self) -> AnswerT:
        """Return what is known after Ctrl-C."""
        return self.answer()

    def outcome(self, announce: Callable[[AnswerT], None] | None = None) -> AnswerT:
        """Search and return the answer; `announce` gets it before its certificate is written.

        Raises Interrupted on Ctrl-C, and UnwrittenError if the certificate cannot be written; both
        have the answer.
        """
        with self.prover.opened():
            try:
                self.run()
            except KeyboardInterrupt as stop:
                raise Interrupted(self.interrupted()) from stop
            found = self.answer()
            if announce is not None:
                announce(found)
            try:
                found = self.with_certificate(found)
            except KeyboardInterrupt as stop:
                raise Interrupted(found) from stop
        if self.prover.unwritten is not None:
            raise UnwrittenError(self.prover.unwritten, found)
        return found


def refuse_own_file(path: Path | None, network: Network, *, several: bool = False) -> None:
    """Raise if a certificate would replace the file that a network was read from."""
    source = network.source
    if path is None or not os.path.isfile(source):
        return
    if file_identity(source) == file_identity(path):
        which = "a network" if several else "the network"
        raise InputError(f"{path}: cannot be written ({which} was read from it)")


def solve(
    problems: Problem | Sequence[Problem],
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    *,
    check_centre: bool = True,
    arithmetic: Arithmetic = "real",
    stated: Network | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> Result:
    """Decide problems that are stated by hand, where :func:`bnncert.verify` has no words for them.

    Parameters
    ----------
    problems
        A problem, or several of which a counterexample to one ends the search; without any the
        answer is "robust".
    method, timeout, options, progress, arithmetic
        Those of :func:`bnncert.verify`.
    check_centre
        Whether the centre of each region is evaluated before the method runs.
    stated
        The network as its file defines it, if the problems are about a widened one.
    certificate
        The file for a certificate of the answer, if there is one problem.

    Returns
    -------
    Result
        The answer to all problems.

    Raises
    ------
    InputError, MissingExtraError, Interrupted
        As :func:`bnncert.verify`.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.problem import output_polytope
    >>> from bnncert.questions.prover import solve
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    >>> at_most = [output_polytope(net, ball, [[1, 0]], [limit]) for limit in (1, 2)]
    >>> [solve(problem, timeout=60).status for problem in at_most]
    ['not_robust', 'robust']
    """
    parts = [problems] if isinstance(problems, Problem) else problems
    networks = [p.network for p in parts[:1]] if stated is None else [stated]
    prover = Prover(Effort(method, timeout, options, progress, certificate), networks, arithmetic)
    return prover.decide(parts, whole=True, stated=stated, check_centre=check_centre)


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """Show what a question is doing while it runs; the bar disappears at the end of the block.

    In a notebook it needs the extra `notebook`.  Where there is neither a notebook nor a terminal,
    nothing is shown.

    Parameters
    ----------
    console
        Where the bar is shown (default: the notebook, or standard error).

    Returns
    -------
    context manager
        Its value is the argument `progress` of :func:`verify` and the other questions.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    >>> with bnncert.progress_bar() as progress:
    ...     result = bnncert.verify(net, ball, label=0, timeout=60, progress=progress)
    >>> result.status
    'robust'
    """
    # Imported on use: only a terminal or a notebook needs it.
    from rich import progress as columns
    from rich.console import Console

    place = console or Console(stderr=True)
    bar = columns.Progress(
        columns.SpinnerColumn(),
        # Names of targets come from files, and are no markup.
        columns.TextColumn("{task.description}", markup=False),
        columns.BarColumn(bar_width=30),
        columns.TimeElapsedColumn(),
        console=place,
        transient=True,
        disable=not (place.is_terminal or place.is_jupyter),
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total or None)

        yield show
