"""How many faults a network tolerates: both sides of every scope, improved until they meet."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray, numbers_hash
from bnncert.deadline import Grace
from bnncert.engine.methods import Options, Progress
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.kernel.claims.claim import ClaimPart
from bnncert.kernel.claims.faults import FaultsClaim
from bnncert.kernel.container import Section
from bnncert.kernel.rules.fault_questions import (
    FaultKind,
    FaultPlace,
    FaultProof,
    FaultQuestion,
    FaultScope,
    PointSigns,
    first_layer,
)
from bnncert.kernel.rules.weight_flips import Fault, FaultError, refuse_shared_weights, with_faults
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, Rivals, Ties, robustness
from bnncert.proofs.claims import claim_section, class_details, read_claim, stated_region
from bnncert.proofs.writing import CertificateError, write_counterexample
from bnncert.questions import QUESTION_SECONDS
from bnncert.questions.faults.fault_attack import PointAttack, attack_points
from bnncert.questions.faults.faults_answer import FaultBit, FaultRow, FaultsResult, layer_name
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.questions.verify import warn_outside
from bnncert.regions import Region, refuse_cover

#: The share of the time for the first proof of a question, and its least and largest seconds.
FIRST_SHARE, LEAST_SLICE, FIRST_SLICE = 0.03, 0.2, 2.0

#: The share of the time for the attack, and its seconds if there is no limit.
ATTACK_SHARE, ATTACK_SECONDS = 0.3, 20.0


def faults(
    network: Network,
    region: Region,
    label: int,
    *,
    rivals: Rivals = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    layers: Sequence[int] | None = None,
    limit: int | None = None,
    method: str = "auto",
    timeout: float | None = None,
    question_timeout: float = QUESTION_SECONDS,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> FaultsResult:
    """Find how many weight bits may flip, or thresholds be stuck, before the class can change.

    A flip turns a weight w into -w; zero weights have no bit.  A neuron whose threshold is stuck
    has any constant sign.  Each row of the answer is about the faults of one scope: those in one
    layer, in one neuron of a layer, or anywhere.

    Parameters
    ----------
    network
        The network; its layers are dense.
    region
        The inputs that should keep their class.  A ball of radius 0 is a single input, for which
        many scopes are decided exactly.
    label, rivals, ties, sign_zero, method, timeout, options, progress
        Those of :func:`verify`.
    layers
        The layers of interest, from 1 (the output is one more than the number of hidden layers);
        None for all of them and for faults anywhere.
    limit
        No more faults than these are looked at; None sets no limit.
    question_timeout
        Seconds for one verification, at most; a number of faults that is not decided in this time
        stays open.
    certificate
        The file for the proofs of all rows, which ``bnncert check`` accepts.

    Returns
    -------
    FaultsResult
        One row for each scope: `certified` faults are tolerated, `falsified` faults are not, and
        the list of their bits.

    Raises
    ------
    InputError
        If an argument cannot be used, as for :func:`verify`; also for a network with convolutions
        or max-pooling, a layer that does not exist, or a negative limit.
    Interrupted
        As :func:`verify`.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> found = bnncert.faults(net, bnncert.Ball("linf", [0.5, 0.25], 0), label=0)
    >>> row = found.row("weights", "layer", 1)
    >>> row.certified, row.falsified, [str(bit) for bit in row.bits]
    (0, 1, ['layer 1, neuron 0, input 0: 1 -> -1'])
    """
    network = network.with_sign_zero(sign_zero)
    refuse_cover(region, "faults")
    # Derived networks have this sign(0) already; their certificates do not state it.
    prover = Prover(Effort(method, timeout, options, progress, certificate), [network])
    refuse_shared_weights(network)
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InputError(f"limit is {limit}; expected a number of faults >= 0")
    if not question_timeout > 0:
        raise InputError(f"question timeout is {question_timeout}; expected seconds > 0")
    problem = robustness(network, region, label, rivals, ties)
    warn_outside(network, region)
    scopes = scopes_of(network, layers)
    return FaultSearch(problem, ties, scopes, limit, prover, question_timeout).outcome()


def scopes_of(network: Network, layers: Sequence[int] | None = None) -> list[FaultScope]:
    """Return the scopes of a table: every layer, one neuron of every layer, and anywhere."""
    depth = network.depth
    for number in layers or ():
        if not isinstance(number, int) or not 1 <= number <= depth + 1:
            raise InputError(
                f"layer is {number}; the network has the layers 1 to {depth} and the output, "
                f"{depth + 1}"
            )
    chosen = range(depth + 1) if layers is None else sorted({n - 1 for n in layers})
    with_weights = [n for n in chosen if n >= first_layer("weights", network)]
    scopes = [FaultScope("weights", "layer", n) for n in with_weights]
    scopes += [] if layers is not None else [FaultScope("weights", "anywhere")]
    scopes += [FaultScope("weights", "neuron", n) for n in with_weights]
    scopes += [FaultScope("thresholds", "layer", n) for n in chosen if n < depth]
    scopes += [] if layers is not None else [FaultScope("thresholds", "anywhere")]
    for scope in scopes:
        scope.refuse_missing(network)
    return scopes


class FaultSearch(Search[FaultsResult]):
    """The rows of one table, which are improved until both sides meet or time is up.

    No more than `limit` faults are of interest, and one verification has at most `seconds`.
    """

    def __init__(
        self,
        problem: Problem,
        ties: Ties,
        scopes: Sequence[FaultScope],
        limit: int | None,
        prover: Prover,
        seconds: float,
    ) -> None:
        network = problem.network
        self.problem, self.ties, self.prover = problem, ties, prover
        self.claim = read_claim(FaultsClaim, self._stated([]), network)
        self.setting = self.claim.setting
        self.deadline, self.limit, self.seconds = prover.deadline, limit, seconds
        self._grace = Grace(self.deadline)
        self._weights = sum(layer.rows.indices.size for layer in network.layers)
        self.rows: dict[FaultScope, FaultRow] = {}
        for scope in scopes:
            layer = None if scope.layer is None else layer_name(network, scope.layer)
            self.rows[scope] = FaultRow(scope, layer, scope.size(network))
        #: The names of proved questions, and the longest time for open ones.
        self._proved: set[str] = set()
        self._open: dict[str, float] = {}
        #: What is done at the moment, for the progress.
        self._stage = "no faults"

    def run(self) -> None:
        """Decide the question without faults, and improve all rows."""
        alone = self.claim.part(FaultQuestion(self.problem.network))
        result = self._decide(alone, self.deadline.remaining())
        for scope, row in self.rows.items():
            if result.status == "robust":
                proof = self.setting.proofs(scope)[0]
                self.rows[scope] = replace(row, certified=0, proof=proof)
            elif result.status == "not_robust":
                self.rows[scope] = replace(row, counterexample=result.counterexample)
        if result.status == "not_robust":
            return
        self._falsify()
        self._share_faults()
        if result.status != "robust":
            # More faults are not easier to exclude than none.
            return
        first = FIRST_SLICE
        if self.deadline.seconds is not None:
            first = max(LEAST_SLICE, FIRST_SHARE * self.deadline.seconds)
        # What holds for stuck thresholds of a layer is tried first for its weights.
        for scope in sorted(self.rows, key=lambda scope: scope.kind == "weights"):
            self._certify(scope, min(first, FIRST_SLICE, self.seconds))
        self._close_gaps()

    def _question(self, network: Network, region: Region) -> Problem:
        """Ask a derived network about the class and the rivals of the given one."""
        label, rivals = self.setting.label, tuple(self.setting.rivals)
        return robustness(network, region, label, rivals, self.ties)

    # -- the upper side -----------------------------------------------------------------------

    def _falsify(self) -> None:
        """Look for few faults that change the class, at some points of the region."""
        share = ATTACK_SECONDS
        if self.deadline.seconds is not None:
            share = ATTACK_SHARE * self.deadline.seconds
        deadline, network = self.deadline.within(share), self.problem.network
        for point in attack_points(self.problem):
            pattern = next(network.exact_patterns(point), None)
            if pattern is None:
                continue
            attack = PointAttack(PointSigns(network, point, pattern), self.problem, deadline)
            for scope in sorted(self.rows, key=self._effort):
                if deadline.passed():
                    return
                where = f"{scope.kind}, {self.rows[scope].name}"
                self.prover.tell(f"{where}: faults that change the class")
                most = self._upper(self.rows[scope]) - 1
                for found in attack.faults(scope, most):
                    if len(found) <= most and self._replay(scope, point, found):
                        break
                if "computed" in self.setting.proofs(scope):
                    self._certify(scope, 0.0)

    def _replay(self, scope: FaultScope, point: FloatArray, found: Sequence[Fault]) -> bool:
        """Evaluate the network with these faults exactly; keep them if the class differs."""
        faulty = with_faults(self.problem.network, found)
        problem = self._question(faulty, self.problem.region)
        replayer = Replayer(problem)
        shown = (replayer.confirm(target, point) for target in problem.targets)
        counterexample = next((entry for entry in shown if entry is not None), None)
        if counterexample is None:
            return False
        bits = tuple(FaultBit.of(self.problem.network, fault) for fault in found)
        self.rows[scope] = replace(
            self.rows[scope], faults=tuple(found), bits=bits, counterexample=counterexample
        )
        return True

    def _share_faults(self) -> None:
        """Use the faults of one neuron for its layer, and those of a layer for faults anywhere."""
        for scope in self.rows:
            for other in list(self.rows.values()):
                inner, row, count = other.scope, self.rows[scope], other.falsified
                same = scope.place == "layer" and inner.layer == scope.layer
                within = inner.kind == scope.kind and (same or scope.place == "anywhere")
                if within and count is not None and count < self._upper(row):
                    shown = other.counterexample
                    self.rows[scope] = replace(
                        row, faults=other.faults, bits=other.bits, counterexample=shown
                    )

    def _effort(self, scope: FaultScope) -> int:
        """Return the place of a scope in the attack: faults of the last layers are found fast."""
        depth = self.problem.network.depth
        fast = scope.place == "neuron" or scope.layer in (depth - 1, depth)
        return 0 if fast else 2 if scope.place == "anywhere" else 1

    def _upper(self, row: FaultRow) -> int:
        """Return the least number of faults that is of no interest for the lower side."""
        known = [row.limit + 1, *([] if self.limit is None else [self.limit + 1])]
        return min(known if row.falsified is None else [*known, row.falsified])

    # -- the lower side -----------------------------------------------------------------------

    def _certify(self, scope: FaultScope, slice_: float) -> None:
        """Raise the certified number of faults of a scope, with `slice_` seconds for a question."""
        row = self.rows[scope]
        if row.certified is None or row.is_exact:
            return
        start = self._first_count(scope)
        for proof in self.setting.proofs(scope):
            row = self.rows[scope]
            assert row.certified is not None

            def holds(count: int, proof: FaultProof = proof) -> bool:
                self._stage = f"{scope.kind}, {self.rows[scope].name}, {count} faults"
                # A question is a network of its own, which takes time to build.
                if not self._grace.allows(self._weights):
                    return False
                if not self._is_tolerated(scope, count, proof, slice_):
                    return False
                self.rows[scope] = replace(self.rows[scope], certified=count, proof=proof)
                return True

            largest(holds, row.certified, self._upper(row), start)

    def _first_count(self, scope: FaultScope) -> int:
        """Guess from related scopes where the search for the largest number begins."""
        row, depth = self.rows[scope], self.problem.network.depth

        def certified(kind: FaultKind, layer: int | None) -> int:
            place: FaultPlace = "anywhere" if layer is None else "layer"
            return self.rows.get(FaultScope(kind, place, layer), row).certified or 1

        if scope.place == "anywhere" and depth > 1:
            return certified(scope.kind, 0)
        exact = "computed" in self.setting.proofs(scope)
        if exact or (scope.place == "neuron" and scope.layer != depth):
            # The other side, or all weights of a neuron.
            return self._upper(row) - 1
        if scope.place == "neuron":
            return certified("weights", depth)
        return max(certified("thresholds", scope.layer), certified(scope.kind, None))

    def _close_gaps(self) -> None:
        """Continue with the open rows, with more time, while some of them improve."""
        waiting = [scope for scope, row in self.rows.items() if not row.is_exact]
        while waiting and not self.deadline.passed():
            scope = waiting.pop(0)
            before = self.rows[scope].certified
            # A row ends with two or three questions that stay open.
            share = self.deadline.remaining() / (2 * len(waiting) + 2)
            self._certify(scope, min(self.seconds, share))
            if self.rows[scope].certified != before and not self.rows[scope].is_exact:
                waiting.append(scope)
        for scope in self.rows:
            # What other rows have proved; no further question is asked.
            self._certify(scope, 0.0)

    def _is_tolerated(
        self, scope: FaultScope, count: int, proof: FaultProof, slice_: float
    ) -> bool:
        """Whether `count` faults of a scope are proved to be tolerated in the time."""
        if proof == "computed":
            return self.setting.is_computed(scope, count, self.ties)
        try:
            questions = self.setting.questions(scope, count, proof)
            return all(self._is_robust(question, slice_) for question in questions)
        except FaultError:
            # The faults can be divided among the layers in too many ways.
            return False

    def _is_robust(self, question: FaultQuestion, slice_: float) -> bool:
        """Whether a question is proved; it is asked again only with more time than before."""
        part = self.claim.part(question)
        name = name_of(part)
        if name in self._proved:
            return True
        limit = min(slice_, self.deadline.remaining())
        if limit <= 0 or self._open.get(name, 0.0) >= limit:
            return False
        return self._decide(part, limit).status == "robust"

    def _decide(self, part: ClaimPart, seconds: float) -> Result:
        """Decide a part, and remember that it is proved, or how long it has been open."""
        name, region = name_of(part), self.problem.region
        if part.region is not self.claim.region.section:
            # The inputs are the numbers of flips of all neurons, few in all.
            region = stated_region(part.region)
        problem = self._question(part.network, region)
        result = self.prover.decide(problem, seconds, name=name, prefix=f"{self._stage}: ")
        result = self.prover.certified(result)
        if result.status == "robust":
            self._proved.add(name)
        else:
            self._open[name] = math.inf if result.status == "not_robust" else seconds
        return result

    # -- the answer ---------------------------------------------------------------------------

    def answer(self) -> FaultsResult:
        """Use what is known of each scope for all that contain it."""
        self._share_faults()
        region, rows = self.problem.region, tuple(self.rows.values())
        told = (self.setting.label, region.describe(), region.to_dict(), rows)
        return FaultsResult(*told, self.deadline.elapsed())

    def certified(self, found: FaultsResult) -> FaultsResult:
        """Write the proofs of all rows that say something."""
        try:
            written = self._write()
            reason = "" if written else "nothing is decided"
        except CertificateError as error:
            written, reason = None, str(error)
        seconds = self.deadline.elapsed()
        return replace(found, certificate=written, no_certificate=reason, seconds=seconds)

    def interrupted(self) -> FaultsResult:
        """Certify the rows so far: what a row says is proved at any time."""
        return self.with_certificate(self.answer())

    def _write(self) -> str | None:
        """Write the certificate of all rows that say something; return its name."""
        known = [r for r in self.rows.values() if r.certified is not None or r.counterexample]
        if not known:
            return None
        stated, names = self._stated(known), list[str]()
        shown = (row for row in known if row.counterexample is not None)
        for part in read_claim(FaultsClaim, stated, self.problem.network).parts():
            if part.verdict == "robust":
                names.append(name_of(part))
                continue
            row = next(shown)
            assert row.counterexample is not None
            names.append(f"faults: {row.scope}")
            faulty = self._question(part.network, self.problem.region)
            file = self.prover.file(names[-1])
            write_counterexample(file, faulty, part.network, row.counterexample)
        return self.prover.finish(stated, names)

    def _stated(self, rows: Sequence[FaultRow]) -> Section:
        """State all rows in one claim, since they have most parts in common."""
        details = class_details(self.problem, self.problem.network, self.ties)
        details["rows"] = [row.claimed() for row in rows]
        return claim_section("faults", self.problem.region, details)


def name_of(part: ClaimPart) -> str:
    """Return what identifies a part of the claim: its network and its region."""
    numbers = np.concatenate([*map(np.ravel, part.region.arrays.values())])
    return f"{part.network.content_hash} {part.region.fields} {numbers_hash(numbers)}"


def largest(holds: Callable[[int], bool], lower: int, upper: int, start: int | None = None) -> int:
    """Return the largest count below `upper` that is found to hold, `lower` being known to hold.

    Steps are doubled until one fails, and then halved; `start` is tried first.
    """
    step, failed = 1, upper
    if start is not None and lower < start < upper:
        lower, failed = (start, failed) if holds(start) else (lower, start)
    while failed > lower + 1:
        count = min(lower + step, failed - 1)
        if holds(count):
            lower, step = count, 2 * step
        else:
            failed = count
            break
    while failed > lower + 1:
        middle = (lower + failed) // 2
        lower, failed = (middle, failed) if holds(middle) else (lower, middle)
    return lower
