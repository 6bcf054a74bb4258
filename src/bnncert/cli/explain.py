"""`bnncert explain`: inputs that suffice for the class of an image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.answer_view import AnswerView
from bnncert.cli.command_question import CommandQuestion, read_decision, read_network, with_argument
from bnncert.cli.consoles import Consoles
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    AnswerOutputs,
    BallShape,
    GridOption,
    InputArgument,
    MethodOption,
    MethodOptions,
    ModelArgument,
    PixelOptions,
    PointOptions,
    PrintOptions,
    ScalingOptions,
    TiesOption,
)
from bnncert.cli.output import refuse_unwritable
from bnncert.cli.progress import LiveLine
from bnncert.cli.recording import Recording
from bnncert.cli.time_limit import limit_text, remaining
from bnncert.cli.unused import refuse_unread
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.questions.explain.explain import QUESTION_SECONDS
from bnncert.questions.explain.explain import explain as explain_api
from bnncert.questions.explain.explanation_answer import Domain, Explanation
from bnncert.regions import Ball
from bnncert.report.picture import KeptPicture

#: Kept inputs up to which they are listed.
MOST_LISTED = 20


@dataclass(frozen=True)
class DomainOptions:
    """The values of inputs that are not kept."""

    radius: Annotated[
        str | None,
        typer.Option(
            "--radius",
            help="By how much inputs that are not kept may change, in input units or as in 8px "
            "(default: anything in the data box).",
        ),
    ] = None
    grid: GridOption = None


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

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files that have to be writable."""
        return *super().files, self.picture_file

    @property
    def picture_file(self) -> Path | None:
        """The file of the picture, if it is not the terminal."""
        return None if self.picture in (None, "-") else Path(str(self.picture))


@grouped
def explain(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    place: InputArgument = None,
    point: PointOptions,
    domain: DomainOptions,
    pixels: PixelOptions,
    settings: MethodOptions,
    question_timeout: Annotated[
        float,
        typer.Option("--question-timeout", help="Seconds for one verification, at most."),
    ] = QUESTION_SECONDS,
    method: MethodOption = "auto",
    ties: TiesOption = "violation",
    outputs: ExplainOutputs,
    printing: PrintOptions,
) -> None:
    """Find inputs that suffice for the class of an image, and show that each is needed."""
    refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, stderr=outputs.json_ == "-")
    point, options = with_argument(point, place), settings.options()
    refuse_unwritable(*outputs.files, read=(model, point.input_, point.labels))
    network = read_network(model, settings.sign_zero)
    question, values = _read(network, point, domain, pixels)
    picture = _picture(outputs, question, values)
    title = f"{model.name}, {question.title}: {question.label_text}, other inputs {values.text}"
    recording = Recording(outputs.results, "explain", question, values.text, {"ties": ties})
    about = {"ties": ties, "method": method, "seed": settings.seed}

    def ask(progress: LiveLine) -> Explanation:
        try:
            return explain_api(
                *(question.network, values, question.label),
                ties=ties,
                sign_zero=settings.sign_zero,
                method=method,
                timeout=remaining(settings.timeout),
                question_timeout=question_timeout,
                options=options,
                progress=progress,
                certificate=outputs.certificate,
            )
        except InputError as error:
            raise InputError(f"{question.where}: {error}") from error

    opening = f"{title}; {limit_text(ctx, settings.timeout)}"
    view = _ExplanationView(consoles, outputs, recording, about, picture)
    view.ask(opening, settings.timeout, ask)


def _read(
    network: Network, point: PointOptions, domain: DomainOptions, pixels: PixelOptions
) -> tuple[CommandQuestion, Domain]:
    """Return the image with its class, and the values that other inputs may take."""
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
        return question, Domain(ball, question.unit.text(ball.stated_radius))
    except InputError as error:
        raise InputError(f"{question.where}: {error}") from error


def _picture(
    outputs: ExplainOutputs, question: CommandQuestion, domain: Domain
) -> KeptPicture | None:
    """Return what draws the picture, if one is wanted."""
    if outputs.picture is None:
        return None
    network = question.network
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = domain.lo, domain.hi
    shape = question.image_shape or network.input_shape
    return KeptPicture(outputs.picture_file, shape, domain.image, lo, hi)


@dataclass(frozen=True, eq=False)
class _ExplanationView(AnswerView[Explanation]):
    """Prints an explanation and writes its picture."""

    picture: KeptPicture | None

    def print_answer(self, found: Explanation) -> None:
        """Print the answer and write the picture."""
        console = self.consoles.details
        if self.consoles.verbose:
            console.print(str(found.table(certificate=False)), soft_wrap=True)
        self.consoles.answer.print(found.heading, soft_wrap=True)
        if 0 < len(found.kept) <= MOST_LISTED:
            console.print(f"kept inputs: {', '.join(map(str, found.kept))}")
        console.print(f"other inputs: {found.domain.text}", soft_wrap=True)
        if found.out_of_time and not found.minimal:
            console.print("the time limit ended the search; a longer one may give a smaller set")
        elif not found.minimal:
            line = "some verifications are undecided; more time for each may give a smaller set"
            console.print(f"{line} (--timeout, --question-timeout)", soft_wrap=True)
        picture = self.picture
        if picture is not None and picture.path is None:
            for row in picture.lines(found, colour=console.is_terminal):
                console.print(row, soft_wrap=True)
        elif picture is not None:
            console.print(picture.write(found), soft_wrap=True)
