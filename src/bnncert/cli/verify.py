"""`bnncert verify`: whether a property holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bnncert.cli.answer_view import begin
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallOptions,
    ExplainOption,
    ModelOptions,
    PrintOptions,
    ScalingOptions,
    SharedMethodOptions,
    TiesOption,
    point_argument,
)
from bnncert.cli.result_views import VerifyOutputs, VerifyView, question_tree
from bnncert.cli.time_limit import finite_limit, limit_text
from bnncert.errors import InputError

NetworksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        metavar="NAME=FILE",
        help="Model of a network that a VNN-LIB query declares: verify QUERY --network f=FILE.",
    ),
]


@dataclass(frozen=True)
class VerifiedBallOptions(BallOptions):
    """A ball, or the query that the argument names instead."""

    place: Annotated[
        str | None,
        point_argument(
            "spec",
            "VNN-LIB query: .vnnlib or .vnnlib.gz; or a point or image folder, as --input.",
        ),
    ] = None


@grouped
def verify(
    *,
    ctx: typer.Context,
    networks: NetworksOption = None,
    source: ModelOptions,
    ball: VerifiedBallOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    settings: SharedMethodOptions,
    arithmetic: Annotated[
        Literal["real", "float32"], "float32: the verdict covers every float32 execution."
    ] = "real",
    explain: ExplainOption = False,
    outputs: VerifyOutputs,
    printing: PrintOptions,
) -> None:
    """Decide whether a property holds, with a counterexample if it does not."""
    from bnncert.cli.command_question import is_input, read_points, with_argument
    from bnncert.cli.grouping import refuse_beside_query
    from bnncert.cli.image_folders import FolderView, verify_folder
    from bnncert.cli.undecided import Asked
    from bnncert.problem.vnnlib import read_vnnlib
    from bnncert.questions.verify import verify as verify_api
    from bnncert.report.picture import CounterexampleFile

    model = source.model
    spec = None if ball.place is None or is_input(ball.place) else ball.place
    if networks:
        from bnncert.cli.standard_query import ask_standard

        refuse_beside_query(ctx, str(model))
        if ball.place is not None:
            raise InputError(f"{ball.place}: with --network the only argument is the query")
        if source.layers is not None:
            raise InputError(f"{source.layers}: the networks of --network have no --layers")
        starting = partial(begin, ctx, printing, outputs, method=settings.method)
        ask_standard(ctx, model, networks, settings, arithmetic, (starting, outputs, explain))
    if model.name.removesuffix(".gz").endswith(".vnnlib"):
        raise InputError(
            f"{model}: is a query; its model comes first (bnncert verify MODEL {model}) or has a "
            f"name (bnncert verify {model} --network NAME=FILE)"
        )
    if spec is None:
        ball = with_argument(ball)
    else:
        refuse_beside_query(ctx, spec)
    options, limit, method = settings.options(), settings.timeout, settings.method
    consoles = begin(ctx, printing, outputs, (*source.files, spec, *ball.files), method)
    network = source.read(settings.sign_zero)
    settled = {"seed": settings.seed, "arithmetic": arithmetic}
    keywords: dict[str, Any] = {"sign_zero": settings.sign_zero, "arithmetic": arithmetic}
    question = query = opening = None
    if spec is not None:
        # The only line of a query is its answer.
        query = read_vnnlib(Path(spec))
        subject: tuple[Any, ...] = (network, query)
        about = partial(question_tree, network, None, specification=str(Path(spec)), **settled)
    else:
        points = read_points(network, ball, ball.shape, scaling)
        consoles.details.notes(points.data.notes)
        if points.is_folder:
            text = limit_text(ctx, limit, " for each image")
            view = FolderView(points, consoles, model.name, text, outputs.json_, outputs.files)
            verify_folder(view, ties, settings, arithmetic)
        question = points.question(points.index)
        network, region = question.network, question.region
        subject = (network, region, question.label)
        keywords |= {"rivals": question.rivals, "ties": ties}
        stated = {"input": question.where, "labels": question.labels, **settled}
        about = partial(question_tree, network, region, **stated)
        opening = f"{model.name}, {question.heading}"
    centre = None if question is None else question.region
    shape = () if question is None else question.image_shape
    saved = CounterexampleFile.around(outputs.save_counterexample, network, centre, shape)
    is_real = arithmetic == "real"
    asked = Asked(method, options, finite_limit(limit), question, ties=ties, is_real=is_real)
    shown = VerifyView(consoles, outputs, about, asked, explain, (network,), query, saved)
    with settings.connected(consoles.watching.say) as options:
        keywords |= {"method": method, "options": options}
        shown.ask(ctx, opening, limit, partial(verify_api, *subject, **keywords))
