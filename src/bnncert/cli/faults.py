"""`bnncert faults`: how many weight bits may flip before the class can change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bnncert.cli.answer_view import RecordedView, begin_at
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    AnswerOutputs,
    MethodOptions,
    ModelOptions,
    PlainBallOptions,
    PrintOptions,
    ScalingOptions,
    TiesOption,
)
from bnncert.questions import QUESTION_SECONDS

if TYPE_CHECKING:
    from bnncert.questions.faults.faults_answer import FaultRow, FaultsResult

#: Faults that are listed without -v.
MOST_LISTED = 4


@dataclass(frozen=True)
class FaultBallOptions(PlainBallOptions):
    """A labelled point and the ball around it, which is the point alone by default."""

    norm: Annotated[Literal["linf", "l2", "l1", "l0"], "Norm of the ball."] = "linf"
    radius: Annotated[
        str,
        "Radius of the inputs that should keep their class, in input units or as in 1px "
        "(default: the point alone).",
    ] = "0"


@dataclass(frozen=True)
class FaultOptions:
    """Which faults are looked at."""

    layer: Annotated[
        list[int] | None,
        "Only this layer, from 1; the output comes after the hidden layers. Can be "
        "repeated (default: all layers, and faults anywhere).",
    ] = None
    max_: Annotated[int | None, "No more faults than these are looked at."] = None
    question_timeout: Annotated[float, "Seconds for one verification, at most."] = QUESTION_SECONDS


@grouped
def faults(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    point: FaultBallOptions,
    scaling: ScalingOptions,
    chosen: FaultOptions,
    ties: TiesOption = "violation",
    settings: MethodOptions,
    outputs: AnswerOutputs,
    printing: PrintOptions,
) -> None:
    """Find how many weight bits may flip, or thresholds be stuck, before the class can change."""
    from bnncert.cli.command_question import read_decision
    from bnncert.questions.faults.fault_search import faults as faults_api

    point, consoles = begin_at(point, ctx, source, settings, outputs, printing)
    network = source.read(settings.sign_zero)
    question = read_decision(
        network,
        point,
        point.shape,
        scaling,
        missing="the point whose class should not change",
        several="faults are looked at for one point",
    )
    consoles.details.notes(question.notes)
    asked = {"ties": ties, "layers": chosen.layer, "most": chosen.max_}
    about = partial(question.about, ties=ties, method=settings.method, seed=settings.seed)
    _FaultsView(consoles, outputs, about, "faults", question, question.ball_text, asked).ask(
        ctx,
        f"{source.model.name}, {question.heading}",
        settings.timeout,
        partial(
            faults_api,
            *(question.network, question.ball, question.label),
            rivals=question.rivals,
            ties=ties,
            layers=chosen.layer or None,
            limit=chosen.max_,
            method=settings.method,
            question_timeout=chosen.question_timeout,
            options=settings.options(),
        ),
    )


@dataclass(frozen=True, eq=False)
class _FaultsView(RecordedView["FaultsResult"]):
    """Prints how many faults are tolerated."""

    def print_answer(self, found: FaultsResult) -> None:
        """Print the table, and the faults that change the class."""
        console = self.consoles.details
        self.consoles.answer.say(str(found.table(certificate=False)))
        rows = [row for row in found.rows if row.counterexample is not None]
        if rows and rows[0].falsified == 0:
            console.say("the class is another one without any fault")
        elif rows and not self.consoles.verbose:
            fewest = min(rows, key=lambda row: row.falsified or 0)
            console.say(_changes(fewest, MOST_LISTED))
        for row in rows if self.consoles.verbose else ():
            console.say(_changes(row))
        if found.status == "open":
            line = "open: the numbers between certified and falsified are undecided"
            console.say(line)


def _changes(row: FaultRow, most: int | None = None) -> str:
    """Return the faults of a row in one line, with the class that they lead to."""
    assert row.counterexample is not None
    bits = "; ".join(map(str, row.bits[:most]))
    if most is not None and len(row.bits) > most:
        bits += f"; and {len(row.bits) - most} more (all of them with -v or --json)"
    count = f"{row.falsified} fault{'s' * (row.falsified != 1)}"
    return f"{row.scope.kind}, {row.name}: {count} for {row.counterexample.target}: {bits}"
