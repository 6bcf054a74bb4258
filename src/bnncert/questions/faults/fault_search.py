"""The faults that a network tolerates: both sides of every scope."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, Grace
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample, Status
from bnncert.errors import InputError
from bnncert.kernel.claims.faults import box_around
from bnncert.kernel.rules.fault_questions import (
    FaultKind,
    FaultPlace,
    FaultProof,
    FaultScope,
    FaultSetting,
    PointSigns,
)
from bnncert.kernel.rules.weight_flips import Fault, refuse_shared_weights, with_faults
from bnncert.kernel.space import read_space
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.problem import Problem, Targets, Ties, robustness
from bnncert.proofs.claims import write_claim
from bnncert.proofs.statement_section import region_section
from bnncert.proofs.writing import CertificateError, write_counterexample
from bnncert.questions.faults.fault_attack import PointAttack
from bnncert.questions.faults.fault_claim import claim_of
from bnncert.questions.faults.fault_points import attack_points
from bnncert.questions.faults.fault_prover import FaultProver, largest
from bnncert.questions.faults.faults_answer import FaultBit, FaultRow, FaultsResult
from bnncert.regions import Region, refuse_cover

#: The share of the time for the first proof of a question, and its least and largest seconds.
FIRST_SHARE, LEAST_SLICE, FIRST_SLICE = 0.03, 0.2, 2.0

#: The longest time for one verification in the second round, if nothing else is asked for.
QUESTION_SECONDS = 10.0

#: The share of the time for the attack, and its seconds if there is no limit.
ATTACK_SHARE, ATTACK_SECONDS = 0.3, 20.0


def tolerated_faults(
    network: Network,
    region: Region,
    label: int,
    *,
    targets: Targets = "all",
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
    label
        The class.
    targets, ties, sign_zero, method, options, progress
        Those of :func:`verify`.
    layers
        The layers of interest, from 1 (the output is one more than the number of hidden layers);
        None for all of them and for faults anywhere.
    limit
        No more faults than these are looked at; None sets no limit.
    timeout
        Seconds for all scopes together; None sets no limit.
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
        On Ctrl-C; its `answer` is what was known by then.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> found = bnncert.tolerated_faults(net, bnncert.Ball("linf", [0.5, 0.25], 0), label=0)
    >>> row = found.row("weights", "layer", 1)
    >>> row.certified, row.falsified, [str(bit) for bit in row.bits]
    (0, 1, ['layer 1, neuron 0, input 0: 1 -> -1'])
    """
    network = network.with_sign_zero(sign_zero)
    REGISTRY.make(method)
    refuse_cover(region, "faults")
    refuse_shared_weights(network)
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InputError(f"limit is {limit}; expected a number of faults >= 0")
    if not question_timeout > 0:
        raise InputError(f"question timeout is {question_timeout}; expected seconds > 0")
    problem = robustness(network, region, label, targets, ties)
    search = _FaultSearch(problem, ties, limit, Deadline(timeout), scopes_of(network, layers))
    search.question_seconds = question_timeout
    with folder_for(certificate) as folder:
        wanted = None if certificate is None else Path(certificate)
        kept = None if wanted is None else folder
        search.prover = FaultProver(
            problem, search.setting, ties, method, options, search.told, folder=kept
        )
        search.progress = progress
        try:
            search.run()
        except KeyboardInterrupt as stop:
            raise Interrupted(_finished(search, wanted, folder)) from stop
        return _finished(search, wanted, folder)


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
    scopes = [FaultScope("weights", "layer", n) for n in chosen]
    scopes += [] if layers is not None else [FaultScope("weights", "anywhere")]
    scopes += [FaultScope("weights", "neuron", n) for n in chosen]
    scopes += [FaultScope("thresholds", "layer", n) for n in chosen if n < depth]
    scopes += [] if layers is not None else [FaultScope("thresholds", "anywhere")]
    for scope in scopes:
        scope.refuse_missing(network)
    return scopes


class _FaultSearch:
    """The rows of one table, which are improved until both sides meet or time is up."""

    prover: FaultProver
    question_seconds = QUESTION_SECONDS
    progress: Progress | None = None
    #: What is done at the moment, for the progress.
    stage = "no faults"

    def __init__(
        self,
        problem: Problem,
        ties: Ties,
        limit: int | None,
        deadline: Deadline,
        scopes: Sequence[FaultScope],
    ) -> None:
        network, region = problem.network, problem.region
        assert problem.label is not None
        rivals = [t.rival for t in problem.targets if t.rival is not None]
        self.problem, self.ties, self.deadline = problem, ties, deadline
        # The checker derives the same questions from the same box.
        space, _, _ = read_space(region_section(region), network)
        self.setting = FaultSetting(network, problem.label, rivals, *box_around(space))
        self.limit = limit
        self._grace = Grace(deadline)
        self._weights = sum(layer.rows.indices.size for layer in network.layers)
        self.rows = {
            scope: FaultRow(scope, _layer_name(network, scope), None, None, scope.size(network))
            for scope in scopes
        }

    def run(self) -> None:
        """Improve all rows."""
        status = self._without_faults()
        if status == "not_robust":
            return
        self._falsify()
        self._share_faults()
        if status != "robust":
            # More faults are not easier to exclude than none.
            return
        first = FIRST_SLICE
        if self.deadline.seconds is not None:
            first = max(LEAST_SLICE, FIRST_SHARE * self.deadline.seconds)
        # What holds for stuck thresholds of a layer is tried first for its weights.
        for scope in sorted(self.rows, key=lambda scope: scope.kind == "weights"):
            self._certify(scope, min(first, FIRST_SLICE, self.question_seconds))
        self._close_gaps()

    def result(self) -> FaultsResult:
        """Return what is known."""
        self._share_faults()
        region = self.problem.region
        return FaultsResult(
            self.setting.label,
            region.describe(),
            region.to_dict(),
            tuple(self.rows.values()),
            self.deadline.elapsed(),
        )

    def told(self, text: str, done: int, total: int) -> None:
        """Report the progress of one verification."""
        if self.progress is not None:
            self.progress(f"{self.stage}: {text}", done, total)

    # -- no faults ----------------------------------------------------------------------------

    def _without_faults(self) -> Status:
        """Decide the question without faults; a counterexample to it falsifies 0 faults."""
        status, found = self.prover.without_faults(self.deadline)
        changes: dict[str, Any] = {"falsified": 0, "counterexample": found}
        for scope, row in self.rows.items():
            if status == "robust":
                changes = {"certified": 0, "proof": self.setting.proofs(scope)[0]}
            if status in ("robust", "not_robust"):
                self.rows[scope] = replace(row, **changes)
        return status

    # -- the upper side -----------------------------------------------------------------------

    def _falsify(self) -> None:
        """Look for few faults that change the class, at some points of the region."""
        share = ATTACK_SECONDS
        if self.deadline.seconds is not None:
            share = ATTACK_SHARE * self.deadline.seconds
        deadline = self.deadline.within(share)
        for point in attack_points(self.problem, self.setting):
            pattern = next(self.problem.network.exact_patterns(point), None)
            if pattern is None:
                continue
            at = PointSigns(self.problem.network, point, pattern)
            attack = PointAttack(at, self.setting.label, self.problem.targets, deadline)
            for scope in sorted(self.rows, key=self._effort):
                if deadline.passed():
                    return
                self.stage = f"{scope.kind}, {self.rows[scope].name}"
                self.told("faults that change the class", 0, 0)
                most = self._upper(self.rows[scope]) - 1
                for faults in attack.faults(scope, most):
                    if len(faults) <= most and self._replay(scope, point, faults):
                        break
                if "computed" in self.setting.proofs(scope):
                    self._certify(scope, 0.0)

    def _share_faults(self) -> None:
        """Use the faults of one neuron for its layer, and those of a layer for faults anywhere."""
        for scope in self.rows:
            for other in list(self.rows.values()):
                inner = other.scope
                within = scope.place == "anywhere" or (
                    scope.place == "layer" and inner.layer == scope.layer
                )
                if inner.kind != scope.kind or not within or other.falsified is None:
                    continue
                if other.falsified < self._upper(self.rows[scope]):
                    self.rows[scope] = replace(
                        self.rows[scope],
                        falsified=other.falsified,
                        bits=other.bits,
                        faults=other.faults,
                        counterexample=other.counterexample,
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

    def with_faults(self, faults: Sequence[Fault]) -> Problem:
        """Return the question about the network with these faults."""
        network, region = with_faults(self.problem.network, faults), self.problem.region
        rivals = tuple(self.setting.rivals)
        return robustness(network, region, self.setting.label, rivals, self.ties)

    def _replay(self, scope: FaultScope, point: FloatArray, faults: Sequence[Fault]) -> bool:
        """Evaluate the network with these faults exactly; keep them if the class differs."""
        row = self.rows[scope]
        found = replayed(self.with_faults(faults), point)
        if found is None:
            return False
        bits = tuple(_bit(self.problem.network, fault) for fault in faults)
        self.rows[scope] = replace(
            row, falsified=len(faults), bits=bits, faults=tuple(faults), counterexample=found
        )
        return True

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
                self.stage = f"{scope.kind}, {self.rows[scope].name}, {count} faults"
                # A question is a network of its own, which takes time to build.
                if not self._grace.allows(self._weights):
                    return False
                if not self.prover.is_tolerated(scope, count, proof, self.deadline, slice_):
                    return False
                self.rows[scope] = replace(self.rows[scope], certified=count, proof=proof)
                return True

            largest(holds, row.certified, self._upper(row), start)

    def _first_count(self, scope: FaultScope) -> int:
        """Return a number of faults that is likely to be certified."""
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
            self._certify(scope, min(self.question_seconds, share))
            if self.rows[scope].certified != before and not self.rows[scope].is_exact:
                waiting.append(scope)
        for scope in self.rows:
            # What other rows have proved; no further question is asked.
            self._certify(scope, 0.0)


def replayed(problem: Problem, point: FloatArray) -> Counterexample | None:
    """Return a point at which the class differs as a counterexample, in exact arithmetic."""
    replayer = Replayer(problem)
    found = (replayer.confirm(target, point) for target in problem.targets)
    return next((entry for entry in found if entry is not None), None)


def _layer_name(network: Network, scope: FaultScope) -> int | str | None:
    if scope.layer is None:
        return None
    return "output" if scope.layer == network.depth else scope.layer + 1


def _bit(network: Network, fault: Fault) -> FaultBit:
    """Return a fault with the weight that it changes."""
    name = _layer_name(network, FaultScope("weights", "layer", fault.layer))
    assert name is not None
    if fault.input is None:
        return FaultBit(name, fault.neuron, None, -fault.sign, fault.sign)
    if fault.layer == network.depth:
        weight = float(network.output.weights[fault.neuron, fault.input])
    else:
        rows = network.layers[fault.layer].rows
        row = slice(rows.indptr[fault.neuron], rows.indptr[fault.neuron + 1])
        weight = float(rows.data[row][rows.indices[row] == fault.input][0])
    return FaultBit(name, fault.neuron, fault.input, weight, -weight)


def _finished(search: _FaultSearch, path: Path | None, folder: Path) -> FaultsResult:
    """Return what is known, and write its certificate if one is wanted."""
    result = search.result()
    if path is None:
        return result
    known = [r for r in result.rows if r.certified is not None or r.counterexample is not None]
    if not known:
        return replace(result, no_certificate="nothing is decided")
    parts: list[Path] = []
    seen: set[Path] = set()
    for number, row in enumerate(known):
        if row.certified is not None and row.proof is not None:
            for part in search.prover.parts(row.scope, row.certified, row.proof):
                if part not in seen:
                    seen.add(part)
                    parts.append(part)
        if row.counterexample is not None:
            faulty = search.with_faults(row.faults)
            parts.append(folder / f"replay-{number}.bnncert")
            write_counterexample(parts[-1], faulty, faulty.network, row.counterexample)
    try:
        write_claim(path, claim_of(search.problem, search.ties, known), parts)
    except CertificateError as error:
        return replace(result, no_certificate=str(error))
    return replace(result, certificate=str(path), seconds=search.deadline.elapsed())
