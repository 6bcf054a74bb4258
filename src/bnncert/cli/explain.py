"""`bnncert explain`: inputs that suffice for the class of an image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.answer_view import RecordedView, begin_at
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    AnswerOutputs,
    BallShape,
    GridOption,
    MethodOptions,
    ModelOptions,
    PixelOptions,
    PointOptions,
    PrintOptions,
    ScalingOptions,
    TiesOption,
)
from bnncert.errors import InputError
from bnncert.questions import QUESTION_SECONDS

if TYPE_CHECKING:
    from bnncert.cli.command_question import CommandQuestion
    from bnncert.model.network import Network
    from bnncert.questions.explain.explanation_answer import Domain, Explanation
    from bnncert.report.picture import KeptPicture

#: Kept inputs up to which they are listed.
MOST_LISTED = 20


@dataclass(frozen=True)
class DomainOptions:
    """The values of inputs that are not kept."""

    radius: Annotated[
        str | None,
        "By how much inputs that are not kept may change, in input units or as in 8px "
        "(default: anything in the data box).",
    ] = None
    grid: GridOption = None
    blocks: Annotated[
        int | None,
        typer.Option(
            "--blocks",
            metavar="N",
            help="Explain by blocks of N x N pixels, which are kept or free as a whole.",
        ),
    ] = None


@dataclass(frozen=True)
class ExplainOutputs(AnswerOutputs):
    """The files that `explain` writes."""

    picture: Annotated[
        str | None,
        typer.Option(
            "--picture",
            metavar="FILE|-",
            help="Write the image with the kept inputs marked: .png or .html; - shows it here.",
        ),
    ] = None


@grouped
def explain(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    point: PointOptions,
    domain: DomainOptions,
    pixels: PixelOptions,
    settings: MethodOptions,
    question_timeout: Annotated[float, "Seconds for one verification, at most."] = QUESTION_SECONDS,
    ties: TiesOption = "violation",
    outputs: ExplainOutputs,
    printing: PrintOptions,
) -> None:
    """Find inputs that suffice for the class of an image, and show that each is needed."""
    from bnncert.questions.explain.explain import explain as explain_api
    from bnncert.questions.prover import UnwrittenError

    point, consoles = begin_at(point, ctx, source, settings, outputs, printing)
    network = source.read(settings.sign_zero)
    question, values = _read(network, point, domain, pixels)
    consoles.details.notes(question.notes)
    picture = _picture(outputs, question, values)
    title = (
        f"{source.model.name}, {question.title}: {question.label_text}, other inputs {values.text}"
    )
    about = partial(question.about, ties=ties, method=settings.method, seed=settings.seed)

    def ask(**how: Any) -> Explanation:
        try:
            return explain_api(
                *(question.network, values, question.label),
                ties=ties,
                sign_zero=settings.sign_zero,
                method=settings.method,
                question_timeout=question_timeout,
                options=settings.options(),
                **how,
            )
        except UnwrittenError:
            raise
        except InputError as error:
            raise InputError(f"{question.where}: {error}") from error

    view = _ExplanationView(
        consoles, outputs, about, "explain", question, values.text, {"ties": ties}, picture
    )
    view.ask(ctx, title, settings.timeout, ask)


def _read(
    network: Network, point: PointOptions, domain: DomainOptions, pixels: PixelOptions
) -> tuple[CommandQuestion, Domain]:
    """Return the image with its class, and the values that other inputs may take."""
    from bnncert.cli.command_question import read_decision
    from bnncert.questions.explain.explain import blocks_of
    from bnncert.questions.explain.explanation_answer import Domain
    from bnncert.regions import Ball

    question = read_decision(
        network,
        point,
        BallShape("linf", domain.radius, grid=domain.grid, whole_box=True),
        ScalingOptions(**vars(pixels)),
        missing="the image that is to be explained",
        several="an explanation is about one image",
    )
    ball = question.region
    assert isinstance(ball, Ball)
    try:
        blocks = None
        if domain.blocks is not None:
            shapes = (question.image_shape, network.input_shape)
            blocks = blocks_of(domain.blocks, *(shape for shape in shapes if shape))
        return question, Domain(ball, question.unit.text(ball.stated_radius), blocks)
    except InputError as error:
        raise InputError(f"{question.where}: {error}") from error


def _picture(
    outputs: ExplainOutputs, question: CommandQuestion, domain: Domain
) -> KeptPicture | None:
    """Refuse a picture of what is no image before the search, and not after it."""
    from bnncert.report.picture import KeptPicture

    if outputs.picture is None:
        return None
    network = question.network
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = domain.lo, domain.hi
    shape = question.image_shape or network.input_shape
    return KeptPicture(outputs.files.get("--picture"), shape, domain.image, lo, hi)


@dataclass(frozen=True, eq=False)
class _ExplanationView(RecordedView["Explanation"]):
    """Prints an explanation and writes its picture."""

    picture: KeptPicture | None

    def print_answer(self, found: Explanation) -> None:
        """Print the answer and write the picture."""
        console = self.consoles.details
        if self.consoles.verbose:
            console.say(str(found.table(certificate=False)))
        self.consoles.answer.say(found.heading)
        kept, blocks = found.kept_units, found.domain.blocks
        if 0 < len(kept) <= MOST_LISTED:
            if blocks is None:
                console.print(f"kept inputs: {', '.join(map(str, kept))}")
            else:
                places = " ".join(f"({row},{column})" for row, column in map(blocks.place, kept))
                console.say(f"kept blocks (row,column from 0): {places}")
        console.say(f"other inputs: {found.domain.text}")
        if found.out_of_time and not found.minimal:
            console.print("the time limit ended the search; a longer one may give a smaller set")
        elif not found.minimal:
            line = "some verifications are undecided; more time for each may give a smaller set"
            console.say(f"{line} (--timeout, --question-timeout)")
        picture = self.picture
        if picture is not None and picture.path is None:
            for row in picture.lines(found, colour=console.is_terminal):
                console.say(row)
        elif picture is not None:
            console.say(picture.write(found))
