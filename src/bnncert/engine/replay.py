"""Replay of counterexamples, in exact arithmetic and, for an ONNX model, in onnxruntime.

A point is reported as a counterexample only if :meth:`Replayer.confirm` accepts it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, SignArray
from bnncert.engine.verdict import Counterexample
from bnncert.model.formats.onnx import OnnxSession
from bnncert.model.network import Network
from bnncert.model.rationals import float_above
from bnncert.problem import Problem, Target

#: A point in rationals.
ExactPoint: TypeAlias = tuple[Fraction, ...]


class OnnxRuntime(OnnxSession):
    """The model file of a network, executed by onnxruntime."""

    @staticmethod
    def of(network: Network) -> OnnxRuntime | None:
        """Return the executable model, or None without an ONNX file, onnxruntime or its support."""
        if network.kind != "onnx" or importlib.util.find_spec("onnxruntime") is None:
            return None
        try:
            from bnncert.model.formats.onnx.graph import read_in_one_piece

            return OnnxRuntime(read_in_one_piece(Path(network.source)))
        except Exception:  # onnxruntime has no exception of its own for "cannot run this model"
            return None


class Replayer:
    """Confirms counterexamples of one problem.

    Parameters
    ----------
    accept
        An extra condition on (point, exact scores), e.g. the original VNN-LIB formula.
    only_float32
        Whether inputs have to be float32 numbers.
    """

    def __init__(
        self,
        problem: Problem,
        runtime: OnnxRuntime | None = None,
        accept: Callable[[list[Fraction], list[Fraction]], bool] | None = None,
        *,
        only_float32: bool = False,
    ) -> None:
        self.only_float32 = only_float32
        self._problem = problem
        self._runtime = runtime
        self._accept = accept
        #: Candidates that are no counterexamples: points of the region, and points between those
        #: of its grid, none of whose neighbours on the grid is one.
        self.rejected = self.rejected_off_grid = 0

    def about(self, problem: Problem) -> Replayer:
        """Return a replayer of another problem about the same model."""
        return Replayer(problem, self._runtime, self._accept, only_float32=self.only_float32)

    def confirm(
        self, target: Target, candidate: FloatArray, exact: ExactPoint | None = None
    ) -> Counterexample | None:
        """Return the candidate as a counterexample, or None if it is not one in exact arithmetic.

        The candidate is first rounded to a float32 point inside the region, so that it also
        replays on hardware, and then to a float64 point; `exact` is not rounded.
        """
        region = self._problem.inputs
        if exact is not None and self._runtime is None and not self.only_float32:
            found = self._check(target, np.array([float(v) for v in exact]), exact)
            if found is not None:
                return found
        kinds: tuple[Any, ...] = (np.float32, np.float64)
        if self.only_float32:
            kinds = (np.float32,)
        elif self._runtime is not None:
            kinds = (self._runtime.dtype,)
        for kind in kinds:
            point = region.settle(candidate, kind)
            if point is not None:
                found = self._check(target, point, None)
                if found is not None:
                    return found
        if region.values is not None and not np.all(region.values.has(candidate)):
            self.rejected_off_grid += 1
        else:
            self.rejected += 1
        return None

    def confirm_exactly(
        self, target: Target, exact: ExactPoint, place: str
    ) -> Counterexample | None:
        """Return a rational point as a counterexample, or None if it is not one.

        onnxruntime takes floats, which may lie beside the point.  It is executed at the nearest
        ones, and is named in `replayed_in` if it agrees there.
        """
        runtime, self._runtime = self._runtime, None
        point = np.array([float(v) for v in exact])
        try:
            found = self._check(target, point, exact)
        finally:
            self._runtime = runtime
        if found is None:
            self.rejected += 1
            return None
        if runtime is not None and self._agrees(runtime.scores(point), found.scores):
            found = replace(found, replayed_in=(*found.replayed_in, "onnxruntime"))
        return replace(found, place=place)

    def value(self, targets: Sequence[Target], candidate: FloatArray) -> list[float] | None:
        """Return F of each target at an exact point of the region near the candidate.

        F is rounded up, so that it is an upper bound of the minimum; where signs at ties are
        undetermined, it is the lowest F.  The result is None if there is no such point.
        """
        point = self._problem.inputs.settle(candidate)
        lasts = [] if point is None else self._last_signs(point)
        return [_lowest(t, lasts) for t in targets] if lasts else None

    def clearly_misses(self, targets: Sequence[Target], candidate: FloatArray) -> bool:
        """Whether floats show that the point which `value` evaluates violates no target."""
        point = self._problem.inputs.settle(candidate)
        lasts = [] if point is None else self._last_signs(point)
        return all(t.is_clearly_met(x) for x in lasts for t in targets)

    def lowest(self, target: Target, candidate: FloatArray, exact: ExactPoint | None) -> float:
        """Return the lower F of a point near the candidate and the exact point; inf without one."""
        found = self.value((target,), candidate)
        values = [np.inf] if found is None else found
        if exact is not None and self._problem.inputs.contains(exact):
            # A tie may occur at this rational point, but not at a float.
            values.append(_lowest(target, self._last_signs(exact)))
        return min(values)

    def _last_signs(self, place: FloatArray | ExactPoint) -> list[SignArray]:
        """Return the signs that the last layer can have at a point, each vector once."""
        patterns = self._problem.network.exact_patterns(place)
        return list({p[-1].tobytes(): p[-1] for p in patterns}.values())

    def reached(self, targets: Sequence[Target], found: Counterexample) -> list[tuple[bool, float]]:
        """Return for each target whether the counterexample violates it, and F, as in `value`."""
        lasts = self._last_signs(found.point if found.exact is None else found.exact)
        return [(any(t.is_violated(x) is True for x in lasts), _lowest(t, lasts)) for t in targets]

    def _check(
        self, target: Target, point: FloatArray, exact: ExactPoint | None
    ) -> Counterexample | None:
        network = self._problem.network
        place = point if exact is None else exact
        if not self._problem.inputs.contains(place):
            return None
        if exact is not None and tuple(map(Fraction, point.tolist())) == exact:
            exact = None
        patterns = network.exact_patterns(place)
        for number, pattern in enumerate(patterns):
            signs = pattern[-1]
            if target.is_violated(signs) is not True:
                continue
            scores = network.output.gain * (
                network.output.weights @ signs.astype(np.float64) + network.output.bias
            )
            if self._accept is not None:
                floats = map(Fraction, point.tolist())
                rationals = list(floats if exact is None else exact)
                if not self._accept(rationals, network.output.exactly(signs)):
                    continue
            replayed = ["exact"]
            if self._runtime is not None:
                if not self._agrees(self._runtime.scores(point), scores):
                    continue
                replayed.append("onnxruntime")
            value, label = target.exactly(signs), self._problem.label
            # With a doubt the value is only an upper bound.
            tied = (
                label is not None
                and value == 0
                and not any(o.exact_error for o in target.objectives)
            )
            return Counterexample(
                point,
                exact,
                target.name,
                value,
                scores,
                tuple(replayed),
                label=label,
                tied_with=target.rival if tied else None,
                best=network.output.exact_class(signs),
                is_one_choice=number > 0 or next(patterns, None) is not None,
            )
        return None

    def _agrees(self, output: FloatArray, scores: FloatArray) -> bool:
        """Whether the output of onnxruntime has the class of the exact scores."""
        transform = self._problem.network.output_transform
        if transform == "argmax":
            return bool(scores[int(output[0])] == scores.max())
        if output.size != scores.size:
            return False
        if transform == "scores":
            size = float(np.abs(scores).max(initial=1.0))
            return bool(np.all(np.abs(output - scores) <= 1e-4 * size))
        best = scores == scores.max()
        return bool(output[best].min() >= output.max())


def _lowest(target: Target, lasts: list[SignArray]) -> float:
    """Return the least F over last-layer signs, rounded up; inf if there are none."""
    return min((float_above(target.exactly(x)) for x in lasts), default=np.inf)
