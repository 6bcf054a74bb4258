"""An explanation of the class of an image: the search for a small set of inputs that suffices."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bnncert.arrays import BoolArray, FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.methods import Options, Progress
from bnncert.engine.methods.interval import interval_proof
from bnncert.engine.presolve.stability import stability
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Counterexample, Status
from bnncert.errors import BnncertError, InputError
from bnncert.kernel.container import Section
from bnncert.kernel.rules.pixel_blocks import PixelBlocks
from bnncert.model.description import SignZero
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.problem import Problem, Target, Ties, robustness
from bnncert.proofs.claims import claim_section
from bnncert.questions import QUESTION_SECONDS
from bnncert.questions.explain.explanation_answer import Domain, Explanation, ExplanationStep
from bnncert.questions.explain.free_points import Enumeration, Witnesses, with_free
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.regions import Ball
from bnncert.regions.pictures import image_layout


def explain(
    network: Network,
    region: Ball | Domain | npt.ArrayLike,
    label: int | None = None,
    *,
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    blocks: int | None = None,
    method: str = "auto",
    timeout: float | None = None,
    question_timeout: float = QUESTION_SECONDS,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> Explanation:
    """Find inputs that suffice for the class of an image, and that are all needed.

    With the inputs of the explanation as in the image, the class is the same for all values of the
    other inputs.  The set is minimal by inclusion if each of its inputs has a witness: a point that
    has another class and differs from the image only in this input and in those that are not kept.

    Parameters
    ----------
    network
        The network, from :func:`load`, :func:`from_torch` or :meth:`Network.from_arrays`.
    region
        The image, and the values of inputs that are not kept: a :class:`Ball` around the image of
        norm "linf", with its radius, data box and grid; or the image alone, for the data box of the
        network.
    label
        Its class (default: the class that the network gives it).
    ties, sign_zero, method, options, progress
        Those of :func:`verify`.
    blocks
        The side of square blocks of pixels that are kept or free as a whole (default: each input
        on its own).  The image has the shape of the network's inputs, or is a square.
    timeout
        Seconds for the whole search; None sets no limit.
    question_timeout
        Seconds for one verification, at most.
    certificate
        The file for a certificate of the explanation, which ``bnncert check`` accepts.

    Returns
    -------
    Explanation
        The kept inputs, which suffice in any case.  At a time limit, or if a verification is
        undecided, some of them are not shown to be needed (`open`).

    Raises
    ------
    InputError
        If the image does not have the label (or only by a tie), is outside the domain, or an
        argument cannot be used, as for :func:`verify`.
    MissingExtraError, Interrupted
        As :func:`verify`.

    Examples
    --------
    The class is 0 if a + b >= 0 and a - b >= 0.  At a = 0.5 and b = 0 both inputs are needed if the
    other one is anywhere in [-1, 1], and one of them if it changes by at most 0.3:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays(
    ...     [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2, input_lo=-1, input_hi=1
    ... )
    >>> found = bnncert.explain(net, [0.5, 0], timeout=60)
    >>> found.kept, found.minimal
    ((0, 1), True)
    >>> near = bnncert.Ball("linf", [0.5, 0], 0.3)
    >>> bnncert.explain(net, near, timeout=60).kept
    (1,)
    """
    if not question_timeout > 0:
        raise InputError(f"question timeout is {question_timeout}; expected seconds > 0")
    network = network.with_sign_zero(sign_zero)
    effort = Effort(method, timeout, options, progress, certificate, sign_zero)
    prover = Prover(effort, [network])
    domain = _domain(network, region, blocks)
    own = int(network.classify(domain.image)[0])
    alone = domain.region(np.zeros(domain.units, dtype=np.bool_))
    problem = robustness(network, alone, own if label is None else label, "all", ties)
    _refuse_other_class(problem)
    return ExplanationSearch(problem, ties, domain, prover, question_timeout).outcome()


def _domain(network: Network, region: Ball | Domain | npt.ArrayLike, blocks: int | None) -> Domain:
    """Return the image with the values of inputs that are not kept."""
    if isinstance(region, Domain):
        return region
    sides = None if blocks is None else blocks_of(blocks, network.input_shape)
    if not isinstance(region, Ball):
        image = network.flatten(region)[0][0]
        region = Ball.of_data_box(image, network.input_lo, network.input_hi)
    return Domain(region, blocks=sides)


def blocks_of(side: int, *shapes: tuple[int, ...]) -> PixelBlocks:
    """Divide an image into blocks; of several shapes, the first one of an image counts."""
    size = math.prod(shapes[0])
    if type(side) is not int or not 1 <= side < 2**31:
        raise InputError(f"blocks is {side}; expected a whole number of pixels, at least 1")
    for shape in shapes:
        layout = image_layout(shape)
        if layout is not None and math.prod(layout) == size:
            return PixelBlocks(side, layout)
    raise InputError(
        f"inputs of shape {shapes[0]} are not an image, which has height and width or a square "
        "number of inputs; without --blocks each input counts on its own"
    )


def _refuse_other_class(problem: Problem) -> None:
    """Raise if the image does not have the label, in exact arithmetic."""
    replayer, centre = Replayer(problem), problem.region.center
    values = replayer.value(problem.targets, centre) or [0.0] * len(problem.targets)
    for target, value in zip(problem.targets, values, strict=True):
        found = replayer.confirm(target, centre) if value <= 0 else None
        if found is None:
            continue
        label, rival = problem.label, target.rival
        if found.value == 0:
            raise InputError(
                f"the image has no class to explain: classes {label} and {rival} have equal scores"
            )
        raise InputError(
            f"the image does not have class {label}: the network gives it class {found.predicted}"
        )
    # All inputs suffice only if the class of the image itself is certain.
    lasts = [pattern[-1] for pattern in problem.network.exact_patterns(centre)]
    certain = all(target.is_violated(x) is False for target in problem.targets for x in lasts)
    if not certain or not 0 < len(lasts) < MOST_TIE_CHOICES:
        raise InputError(
            "the image has no class to explain: its scores or signs are not known exactly enough"
        )


#: Seconds of a verification: at least LEAST, and FACTOR times those of the longest proof so far, up
#: to the limit of the caller.
LEAST, FACTOR = 5.0, 4.0

#: The share of the remaining time of the search that one verification has at most, and its seconds
#: at least.  The search ends if this is less than a share of the longest proof.
SHARE, SHORTEST, LATE_SHARE = 0.3, 0.05, 0.5

#: Seconds for the image alone, and their share of the remaining time, at most.
FIRST, FIRST_SHARE = 60.0, 0.5

#: Seconds of a search for witnesses of all inputs, and its share of the remaining time, at most.
WITNESS_SECONDS, WITNESS_SHARE = 10.0, 0.1

#: A group of at most this share of the inputs is small.  After PATIENCE undecided small groups in a
#: row no others are verified, because the influence of the next ones is larger.
SMALL_SHARE, PATIENCE = 1 / 200, 3

#: The share of the remaining time for the question whether all blocks are free together.  Without
#: an answer no block can be shown to be needed, because no counterexample is known.  It is worth so
#: much time only if the closest rival is proved, in a smaller share.
WHOLE_SHARE, CLOSEST_SHARE = 0.85, 0.4

#: Rounds in which inputs are ordered; each chooses an equal share of them.
MOST_ROUNDS = 200

#: Neurons with an effect of 0 count as this share of the average.
LEAST_EFFECT = 0.05


class RegionAnswer(NamedTuple):
    """The answer about one region, and what decided it."""

    status: Status
    method: str
    counterexample: Counterexample | None = None


class ExplanationSearch(Search[Explanation]):
    """The state of a search, which is complete at any time; `problem` is about the image alone.

    The set F of free units, inputs or blocks of pixels, grows while the region of F is proved
    robust; the inputs that are left are kept.  Regions grow with F, so a counterexample for F and
    one more input remains one for every larger F: that input is needed for good.  A rival that is
    proved in a region is proved in every smaller one: it is not asked about again.

    `limit` is the limit of one verification in seconds.
    """

    def __init__(
        self, problem: Problem, ties: Ties, domain: Domain, prover: Prover, limit: float
    ) -> None:
        self._problem, self._ties, self._domain = problem, ties, domain
        self.prover, self.deadline, self._limit = prover, prover.deadline, limit
        #: The units that are proved to be free together, and the counterexamples of needed ones.
        self.free: BoolArray = np.zeros(domain.units, dtype=np.bool_)
        self.witnesses: dict[int, Counterexample] = {}
        self._steps: list[ExplanationStep] = []
        self._out_of_time = False
        #: The number of free units of the last question that was undecided.
        self._undecided = domain.units + 1
        #: How many units were free when the question about one more was undecided; -1: it was not.
        self._open_at = np.full(domain.units, -1)
        #: For each target, the sets of free units for which it is proved.
        self._shown: dict[str, list[BoolArray]] = {t.name: [] for t in problem.targets}
        self._longest = 0.0
        #: The name of the part that proves the region of all free units.
        self._proved = ""
        self._search = Witnesses(problem, domain, self.deadline)
        self._points = Enumeration(problem, domain, self.deadline)

    def run(self) -> None:
        """Free as many inputs as the time allows, and look for witnesses of the others."""
        if self.prover.wants_certificate:
            # The image alone has a certificate; without one nothing is known at a time limit.
            self._ask(np.zeros(0, dtype=np.int64))
        problem = self._problem
        order = least_influence_first(problem.network, self._domain, problem.targets, self.deadline)
        self._free_by_intervals(order)
        self._look_for_witnesses(attack=True)
        if self._domain.blocks is not None and not self.witnesses:
            self._ask_everything()
        self._grow(order)
        self._look_for_witnesses(attack=False)

    def _ask_everything(self) -> None:
        """Ask about all blocks at once: one long question often decides a small domain.

        The rival that comes closest is asked about first: if it stays open, so does the question.
        """
        waiting, targets = np.flatnonzero(~self.free), self._problem.targets
        first = None if len(targets) == 1 else self._search.closest
        if self._points.fits(np.ones_like(self.free)):
            first = None
        for only, share in ((first, CLOSEST_SHARE), (None, WHOLE_SHARE))[first is None :]:
            if not waiting.size or self.deadline.passed():
                return
            # Without a limit of the search a part of it is none.
            is_limited = self.deadline.seconds is not None
            limit = share * self.deadline.remaining() if is_limited else self._limit
            answer = self._ask(waiting, limit, only)
            if answer.counterexample is not None:
                self._learn(waiting, answer.counterexample)
                return
            if answer.status != "robust":
                self._undecided = self._domain.units
                return
        self.free = with_free(self.free, waiting)

    def _grow(self, order: IntArray) -> None:
        """Free groups of inputs; the size of a group is doubled after a proof.

        After an undecided question about n free inputs, the next group is half of the way to n.
        """
        size, misses = max(1, int(self.free.sum()) // 2), 0
        small = max(1, int(SMALL_SHARE * order.size))
        # Blocks are few: each of them is asked about.
        while misses < PATIENCE or self._domain.blocks is not None:
            waiting = self._waiting(order)
            self._out_of_time = bool(waiting.size) and self._is_late
            if not waiting.size or self._out_of_time:
                break
            half = (self._undecided - int(self.free.sum())) // 2
            added = waiting[: max(1, min(size, half)) if half >= 0 else size]
            result = self._ask(added)
            if result.status == "robust":
                self.free = with_free(self.free, added)
                misses = 0
                self._look_for_witnesses(attack=True)
                size = 2 * added.size
            elif result.counterexample is not None:
                self._learn(added, result.counterexample)
                misses, size = 0, max(1, added.size // 2)
                self._look_for_witnesses(attack=False)
            else:
                self._undecided = int(self.free.sum()) + added.size
                misses += added.size <= small
                if added.size == 1:
                    self._open_at[added] = self.free.sum()
                size = max(1, added.size // 2)

    def _waiting(self, order: IntArray) -> IntArray:
        """Return the units to ask about next: open blocks once more when more is free than then."""
        decided = self.free | self._needed
        new = order[~(decided | (self._open_at >= 0))[order]]
        if new.size or self._domain.blocks is None:
            return new
        return order[(~decided & (self._open_at < int(self.free.sum())))[order]]

    @property
    def _needed(self) -> BoolArray:
        needed = np.zeros(self._domain.units, dtype=np.bool_)
        needed[list(self.witnesses)] = True
        return needed

    def _free_by_intervals(self, order: IntArray) -> None:
        """Free the longest beginning of the order that interval bounds prove, found by bisection.

        If a certificate is asked for, the proof is made again for it.
        """
        low, high = 0, order.size + 1
        while high - low > 1 and not self.deadline.passed():
            # The first guess is that all inputs are free, which a small domain allows.
            middle = order.size if high > order.size else (low + high) // 2
            free = with_free(self.free, order[:middle])
            if self._is_proved_by_intervals(free):
                low = middle
            else:
                high = middle
        if low and (not self.prover.wants_certificate or self._ask(order[:low]).status == "robust"):
            self.free = with_free(self.free, order[:low])

    def _is_proved_by_intervals(self, free: BoolArray) -> bool:
        bounds = stability(self._problem.network, self._domain.region(free), self.deadline)
        return all(interval_proof(target, bounds[-1])[1] for target in self._problem.targets)

    def _ask(
        self, added: IntArray, limit: float | None = None, only: Target | None = None
    ) -> RegionAnswer:
        """Decide whether further units are free together with those that are.

        `limit` replaces the usual seconds, and `only` asks about one target instead of all.
        """
        free, started = with_free(self.free, added), self.deadline.elapsed()
        answer = self._by_enumeration(free)
        answer = answer or self._by_method(free, int(added.size), limit, only)
        seconds = self.deadline.elapsed() - started
        if answer.status == "robust" and only is None:
            self._longest = max(self._longest, seconds)
        step = (int(free.sum()), int(added.size), answer.status, answer.method, seconds)
        self._steps.append(ExplanationStep(*step))
        return answer

    def _by_enumeration(self, free: BoolArray) -> RegionAnswer | None:
        """Return the answer for a region of few grid points; None if it needs a method."""
        if not self._points.fits(free):
            return None
        is_decided, point = self._points.violation(free)
        if point is not None:
            found = self._search.confirm(free, point)
            return None if found is None else RegionAnswer("not_robust", "enumeration", found)
        # A certificate needs the proof of a method.
        if not is_decided or self.prover.wants_certificate:
            return None
        return RegionAnswer("robust", "enumeration")

    def _by_method(
        self, free: BoolArray, added: int, limit: float | None, only: Target | None
    ) -> RegionAnswer:
        """Run the method, for longer if earlier proofs took long, or up to a limit of its own."""
        # Without the certificate of the image alone there may be none at the end.
        first = min(FIRST_SHARE * self.deadline.remaining(), FIRST)
        seconds = max(self._seconds if np.any(free) else first, SHORTEST)
        seconds = seconds if limit is None else max(limit, SHORTEST)
        problem = self._search.question(free)
        if only is not None:
            problem = replace(problem, targets=(only,))
        elif not self.prover.wants_certificate:
            # A certificate is one proof of all targets.
            open_ = tuple(t for t in problem.targets if not self._is_shown(t, free))
            if not open_:
                return RegionAnswer("robust", "larger regions")
            problem = replace(problem, targets=open_)
        # Each proof has a name of its own: the last one stays if the next has no certificate.
        name = "" if only is not None else f"region {len(self._steps)}"
        result = self.prover.decide(problem, seconds, name=name, prefix=self._words(added, only))
        for target in result.targets:
            if target.status == "robust":
                self._shown[target.name].append(free)
        if only is not None:
            stage = ", ".join(filter(None, (result.deciding_stage, f"{only.name} alone")))
            return RegionAnswer(result.status, stage, result.counterexample)
        # A proof without a certificate is not used, so that the certificate shows the result.
        result = self.prover.certified(result)
        if result.status == "robust":
            self._proved = name
        return RegionAnswer(result.status, result.deciding_stage, result.counterexample)

    def _words(self, added: int, only: Target | None) -> str:
        """Return the beginning of the text of progress: what is known, and what is asked."""
        total = self._domain.units
        asked = f"all {total}" if int(self.free.sum()) + added == total else f"{added} more"
        rival = "" if only is None else f" {only.name} first:"
        return f"{self._state}, {asked}?{rival} "

    @property
    def _state(self) -> str:
        """What is known, in a few words."""
        units = "inputs" if self._domain.blocks is None else "blocks"
        done, total = int(self.free.sum()), self._domain.units
        return f"{done} of {total} {units} free, {len(self.witnesses)} needed"

    def _is_shown(self, target: Target, free: BoolArray) -> bool:
        """Whether a target is proved for these free units or for more."""
        return any(not np.any(free & ~larger) for larger in self._shown[target.name])

    @property
    def _seconds(self) -> float:
        """The seconds for the next verification."""
        seconds = min(self._limit, max(LEAST, FACTOR * self._longest))
        return min(seconds, SHARE * self.deadline.remaining())

    @property
    def _is_late(self) -> bool:
        """Whether the next verification would be much shorter than the longest proof."""
        return self.deadline.passed() or self._seconds < LATE_SHARE * self._longest

    def _learn(self, added: IntArray, found: Counterexample) -> None:
        """Keep the witness if the counterexample changes one of the added inputs only."""
        changed, found = self._search.narrow(self.free, added, found)
        if not changed.size:
            raise BnncertError(
                "contradiction: a region was proved, but there is a counterexample in it; please "
                "report this"
            )
        if changed.size == 1:
            self.witnesses[int(changed[0])] = found

    def _look_for_witnesses(self, *, attack: bool) -> None:
        """Try all inputs that may be needed at points of low margin."""
        waiting = np.flatnonzero(~(self.free | self._needed))
        if not waiting.size or self.deadline.passed():
            return
        end = self.deadline.within(min(WITNESS_SECONDS, WITNESS_SHARE * self.deadline.remaining()))
        self.prover.tell(f"{self._state}, looking for counterexamples")
        if attack:
            self._search.attack(self.free, end)
        for i, witness in self._search.find(self.free, waiting, end, attack=attack):
            self.witnesses[i] = witness

    # -- the answer ---------------------------------------------------------------------------

    def answer(self) -> Explanation:
        """Keep the witnesses that change no kept input besides their own."""
        witnesses = {
            i: found
            for i, found in sorted(self.witnesses.items())
            if self._domain.region(with_free(self.free, [i])).contains(found.exact or found.point)
        }
        assert self._problem.label is not None
        return Explanation(
            label=self._problem.label,
            domain=self._domain,
            kept_units=tuple(np.flatnonzero(~self.free).tolist()),
            witnesses=witnesses,
            steps=tuple(self._steps),
            seconds=self.deadline.elapsed(),
            out_of_time=self._out_of_time or self.deadline.passed(),
        )

    def certified(self, found: Explanation) -> Explanation:
        """Write the claim with the proof that the kept inputs suffice."""
        if not self.prover.has(self._proved):
            return replace(found, no_certificate=self.prover.reason)
        written = self.prover.finish(self._claim(found.witnesses), [self._proved])
        return replace(found, certificate=written, seconds=self.deadline.elapsed())

    def interrupted(self) -> Explanation:
        """Certify the kept inputs, which suffice at any time."""
        return self.with_certificate(self.answer())

    def _claim(self, witnesses: Mapping[int, Counterexample]) -> Section:
        """Return the claim of the certificate.

        A witness is stored by the inputs in which it differs from the image: `starts` divides
        `changed` and `values` into the parts of the needed inputs.  Values that are no floats are
        in `exact`.
        """
        domain, names = self._domain, [target.name for target in self._problem.targets]
        starts, changed = [0], list[int]()
        values, exact = list[float](), dict[str, str]()
        for found in witnesses.values():
            point: Sequence[Fraction | float] = found.exact or found.point.tolist()
            places = [i for i, c in enumerate(domain.image.tolist()) if point[i] != c]
            if found.exact is not None:
                exact |= {str(len(changed) + k): str(point[i]) for k, i in enumerate(places)}
            changed += places
            values += found.point[places].tolist()
            starts.append(len(changed))
        details = {"label": self._problem.label, "ties": self._ties, "exact": exact}
        details |= {"blocks": None if domain.blocks is None else domain.blocks.stated()}
        targets = [names.index(found.target) for found in witnesses.values()]
        numbers = {"kept": np.flatnonzero(~self.free), "needed": list(witnesses)}
        numbers |= {"targets": targets, "starts": starts, "changed": changed}
        arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
        arrays["values"] = np.array(values, dtype=np.float64)
        claim = claim_section("explanation", domain.everything, details, arrays)
        # On a grid, the radius of a ball includes the rounding of its values: this is the part's.
        claim.fields["details"]["region"]["radius"] = str(Fraction(domain.region(self.free).radius))
        return claim


def least_influence_first(
    network: Network, domain: Domain, targets: tuple[Target, ...], deadline: Deadline
) -> IntArray:
    """Return all units, those of least influence first; after the deadline, roughly so.

    A first-layer neuron j with sum u_j and threshold at distance d_j from it flips if the free
    inputs can move the sum by d_j in the adverse direction.  Input i moves it by at most

        a_ji = s_j w_ji (c_i - l_i)  if s_j w_ji > 0,     -s_j w_ji (h_i - c_i)  otherwise,

    with the sign s_j at the image c and the domain [l_i, h_i].  A flip of neuron j lowers the
    margin over a rival by about e_j, found by a smooth approximation of the later layers.  The next
    input is the one with the least sum over j of e_j g_j a_ji, where g_j decreases with the
    distance that is left of d_j.
    """
    first = network.layers[0]
    distance = _distance(first, domain.image)
    sign = np.where(distance >= 0, 1.0, -1.0)
    effect = _effects(network, sign, targets)
    region = domain.everything
    down, up = domain.image - region.lo, region.hi - domain.image
    adverse = sp.diags_array(sign) @ first.weights.astype(np.float64)
    falling, rising = sp.csr_array(adverse.maximum(0).T), sp.csr_array((-adverse).maximum(0).T)
    left = np.abs(distance)
    reach = falling.T @ down + rising.T @ up
    scale = max(min(float(np.median(left)) / 4, float(reach.mean()) / 10), 1e-30)
    chosen: list[IntArray] = []
    waiting = np.ones(domain.units, dtype=np.bool_)
    count = -(-domain.units // MOST_ROUNDS)
    while np.any(waiting):
        weight = effect * np.exp(np.where(left > 0, -left, left / 4) / scale)
        costs = down * (falling @ weight) + up * (rising @ weight)
        cost = np.bincount(domain.unit, weights=costs, minlength=domain.units)
        cost[~waiting] = np.inf
        left_over = int(waiting.sum())
        size = left_over if deadline.passed() else min(count, left_over)
        best = np.argsort(cost, kind="stable")[:size]
        chosen.append(best)
        waiting[best] = False
        inputs = np.flatnonzero(np.isin(domain.unit, best))
        left -= falling[inputs].T @ down[inputs] + rising[inputs].T @ up[inputs]
    return np.concatenate(chosen)


def _distance(layer: Any, below: FloatArray) -> FloatArray:
    sums = np.asarray(layer.weights.astype(np.float64) @ below)
    return sums - np.asarray(layer.threshold(np.float64), dtype=np.float64)


def _effects(network: Network, sign: FloatArray, targets: tuple[Target, ...]) -> FloatArray:
    """Return about how far a flip of each first-layer neuron lowers a margin, relative to it.

    A later neuron is taken as the sign of its sum plus normal noise of deviation sqrt(n) / 2 for n
    weights, which many flips make: its derivative is the density of the noise.
    """
    densities = []
    below = sign
    for layer in network.layers[1:]:
        distance = _distance(layer, below)
        spread = np.maximum(np.sqrt(layer.norm) / 2, 1.0)
        densities.append(np.exp(-((distance / spread) ** 2) / 2) * 0.8 / spread)
        below = np.where(distance >= 0, 1.0, -1.0)
    slopes = np.array([t.objectives[0].coefficients for t in targets], dtype=np.float64)
    margins = np.array([float(t.values(below[None, :])[0]) for t in targets])
    for layer, density in zip(network.layers[:0:-1], densities[::-1], strict=True):
        slopes = np.asarray((layer.weights.T.astype(np.float64) @ (slopes * density).T).T)
    drops = 2 * np.maximum(slopes * sign, 0.0) / np.maximum(margins, 1e-9)[:, None]
    effect = drops.max(axis=0)
    return np.asarray(effect + LEAST_EFFECT * max(float(effect.mean()), 1e-30))
