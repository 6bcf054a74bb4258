"""The one prover of all questions: it decides parts and keeps their certificates for the claim.

A question states a claim, which follows from parts: ordinary verifications of derived networks on
convex regions.  Its strategy says which part comes next; the prover decides it within the limits of
the question, and at the end writes the claim with the certificates of the parts that it needs.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from bnncert.deadline import TIME_IS_UP, Deadline
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.kernel.container import Section
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import file_identity, folder_for, replacing
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.problem.float32 import Arithmetic
from bnncert.proofs.claims import write_claim
from bnncert.proofs.request import CertificateRequest
from bnncert.questions.solving import Announce, solve

#: The least limit of a part, with which a method returns its first results at once.
LEAST_SECONDS = 1e-3


@dataclass(frozen=True, eq=False)
class Effort:
    """How a question is answered; the keywords of all questions.

    Attributes
    ----------
    method
        A name from ``bnncert methods``.
    timeout
        Seconds for the whole question; None sets no limit.
    options
        Settings of the method.
    progress
        Called with a text, the number of steps done and the number of all steps (0: unknown).
    certificate
        The file for a certificate of the answer, which ``bnncert check`` accepts.
    sign_zero
        Replaces the sign(0) of the model: "plus", "minus" or "either".
    """

    method: str = "auto"
    timeout: float | None = None
    options: Options | None = None
    progress: Progress | None = None
    certificate: str | os.PathLike[str] | None = None
    sign_zero: SignZero | None = None


@dataclass(eq=False)
class Prover:
    """Decides the parts of one question; a context manager, which owns their certificates.

    Raises InputError at once for an unknown method, options outside their range, and a certificate
    that would replace the file of a network.

    Attributes
    ----------
    effort
        The settings of the question.
    networks
        The networks that the question is about.
    arithmetic
        That of :func:`bnncert.verify`.
    deadline
        The limit of the whole question, which began with the prover.
    reason
        Why the last proof has no certificate; empty if it has one.
    """

    effort: Effort
    networks: Sequence[Network]
    arithmetic: Arithmetic = "real"
    deadline: Deadline = field(init=False)
    options: Options = field(init=False)
    reason: str = ""
    _folder: Path | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    #: The certificates of parts by name, and the number of files.
    _proofs: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        REGISTRY.make(self.effort.method)
        self.options = (self.effort.options or Options()).check()
        self.deadline = Deadline(self.effort.timeout)
        for network in self.networks:
            refuse_own_file(self.path, network, several=len(self.networks) > 1)

    def __enter__(self) -> Prover:
        if self.path is not None:
            self._folder = self._stack.enter_context(folder_for(self.path))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    @property
    def path(self) -> Path | None:
        """The file of the certificate; None if none is request."""
        return None if self.effort.certificate is None else Path(self.effort.certificate)

    @property
    def wants_certificate(self) -> bool:
        """Whether the answer should have a certificate."""
        return self.effort.certificate is not None

    def decide(
        self,
        problem: Problem,
        seconds: float = math.inf,
        *,
        name: str = "",
        stated: Network | None = None,
        method: str | None = None,
        prefix: str = "",
        strict: bool = False,
        check_centre: bool = True,
        announce: Announce | None = None,
    ) -> Result:
        """Decide one part.

        Parameters
        ----------
        problem
            The part.
        seconds
            The limit of this part, besides that of the question.
        name
            The part's name in :meth:`finish`; without one, no certificate is kept.
        stated
            The network as its file defines it, if the problem is about a widened one.
        method
            Another method than that of the question.
        prefix
            The beginning of the text of its progress.
        strict, check_centre, announce
            Those of :func:`bnncert.questions.solving.solve`.

        Returns
        -------
        Result
            The answer; with the name of a file as `certificate` if one is request and was written.
            The certificate of a proof replaces that of an earlier proof of the same name; that of a
            counterexample is kept only if there is no other.
        """
        limit = min(seconds, self.deadline.remaining())
        request = None
        if name and self._folder is not None:
            self._count += 1
            network = problem.network if stated is None else stated
            file = self._folder / f"{self._count}.bnncert"
            request = CertificateRequest(file, network, self.arithmetic, self.effort.sign_zero)
        result = solve(
            [problem],
            method or self.effort.method,
            None if limit == math.inf else max(limit, LEAST_SECONDS),
            self.options,
            self.told(prefix),
            strict=strict,
            check_centre=check_centre,
            arithmetic=self.arithmetic,
            request=request,
            announce=announce,
        )
        if request is not None:
            self._keep(name, request.path, result)
        return result

    def _keep(self, name: str, file: Path, result: Result) -> None:
        """Remember the certificate of a proof, or why it has none."""
        if result.certificate is not None and (result.status == "robust" or not self.has(name)):
            self._proofs[name] = file
        elif result.status != "robust":
            file.unlink(missing_ok=True)
        if result.status == "robust":
            missing = result.certificate is None
            self.reason = (result.notes[-1] if result.notes else "") if missing else ""
            if missing:
                self._proofs.pop(name, None)

    def certified(self, result: Result) -> Result:
        """Return a result; a proof without a certificate, where one is request, as unknown.

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
        """Whether there is a certificate of this part."""
        return name in self._proofs

    def file(self, name: str) -> Path:
        """Return a file for a part that the question itself writes, such as a counterexample."""
        assert self._folder is not None
        self._count += 1
        self._proofs[name] = self._folder / f"{self._count}.bnncert"
        return self._proofs[name]

    def told(self, prefix: str) -> Progress | None:
        """Return the progress of a part, whose texts begin with a prefix."""
        show = self.effort.progress
        if show is None or not prefix:
            return show
        return lambda text, done, total: show(prefix + text, done, total)

    def finish(self, claim: Section | None = None, names: Iterable[str] = ()) -> str:
        """Write the certificate: a claim with its parts in order, or one part; return its name."""
        assert self.path is not None
        files = [self._proofs[name] for name in names]
        if claim is not None:
            write_claim(self.path, claim, files)
        else:
            (part,) = files
            with replacing(self.path) as file, part.open("rb") as source:
                shutil.copyfileobj(source, file)
        return str(self.path)


def refuse_own_file(path: Path | None, network: Network, *, several: bool = False) -> None:
    """Raise if a certificate would replace the file that a network was read from."""
    source = network.source
    if path is None or not os.path.isfile(source):
        return
    if file_identity(source) == file_identity(path):
        which = "a network" if several else "the network"
        raise InputError(f"{path}: cannot be written ({which} was read from it)")
