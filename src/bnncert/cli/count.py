"""`bnncert count`: how many grid points of a region have another class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bnncert.cli.answer_view import RecordedView, begin_at
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    AnswerOutputs,
    ModelOptions,
    PlainBallOptions,
    PrintOptions,
    ScalingOptions,
    SeedOption,
    SignZeroOption,
    TiesOption,
    TimeoutOption,
)
from bnncert.cli.time_limit import DEFAULT_LIMIT
from bnncert.errors import InputError
from bnncert.questions import CONFIDENCE, SAMPLES

if TYPE_CHECKING:
    from bnncert.cli.command_question import CommandQuestion
    from bnncert.model.network import Network
    from bnncert.questions.count.count_answer import CountResult


@dataclass(frozen=True)
class CountBallOptions(PlainBallOptions):
    """A labelled point and the points of a grid around it."""

    norm: Annotated[
        Literal["linf", "l0"], "Norm of the ball; l0: at most --radius inputs change."
    ] = "linf"
    radius: Annotated[
        str | None, "Radius in input units, in pixels as in 1px, or for l0 a number."
    ] = None


@dataclass(frozen=True)
class CountSettings:
    """The limits of the search, and the random points."""

    timeout: TimeoutOption = DEFAULT_LIMIT
    samples: Annotated[int, "Random points for the estimate; 0 for none."] = SAMPLES
    confidence: Annotated[float, "Level of the interval of the estimate."] = CONFIDENCE
    seed: SeedOption = 0
    sign_zero: SignZeroOption = None


@grouped
def count(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    point: CountBallOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    settings: CountSettings,
    outputs: AnswerOutputs,
    printing: PrintOptions,
) -> None:
    """Count the grid points of a region whose class changes, with certified bounds."""
    from bnncert.questions.count.count import count as count_points

    point, consoles = begin_at(point, ctx, source, None, outputs, printing)
    network = source.read(settings.sign_zero)
    question = _read(network, point, scaling)
    consoles.details.notes(question.notes)
    region = question.region.to_dict()
    about = partial(question.about, ties=ties, region=region, seed=settings.seed)
    _CountView(consoles, outputs, about, "count", question, question.ball_text, {"ties": ties}).ask(
        ctx,
        f"{source.model.name}, {question.heading}",
        settings.timeout,
        partial(
            count_points,
            *(question.network, question.ball, question.label),
            rivals=question.rivals,
            ties=ties,
            samples=settings.samples,
            confidence=settings.confidence,
            seed=settings.seed,
        ),
    )


def _read(network: Network, point: CountBallOptions, scaling: ScalingOptions) -> CommandQuestion:
    """Read the ball; without a radius or a grid there is nothing to count."""
    from bnncert.cli.command_question import read_decision

    if point.input_ is not None and point.radius is None:
        raise InputError("--radius is missing; give the radius of the ball")
    if point.input_ is not None and point.grid is None:
        raise InputError(
            "--grid is missing; without it a ball has infinitely many points (1px: integer pixels)"
        )
    return read_decision(
        network,
        point,
        point.shape,
        scaling,
        missing="the point around which points are counted",
        several="points are counted around one image",
    )


@dataclass(frozen=True, eq=False)
class _CountView(RecordedView["CountResult"]):
    """Prints the bounds of a count."""

    def print_answer(self, found: CountResult) -> None:
        """Print the bounds, and with -q only a sentence."""
        if self.consoles.quiet:
            self.consoles.answer.say(found.summary)
        self.consoles.details.say(str(found.table(certificate=False)))
