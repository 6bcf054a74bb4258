"""`bnncert bound`: a lower bound of the margin over each rival."""

from __future__ import annotations

import typer

from bnncert.cli.batches import show_notes
from bnncert.cli.cluster_options import with_cluster
from bnncert.cli.command_question import read_network, read_points, with_argument
from bnncert.cli.consoles import Consoles
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallOptions,
    BoundMethodOptions,
    ExplainOption,
    InputArgument,
    JsonOption,
    MethodOption,
    ModelArgument,
    PrintOptions,
    ScalingOptions,
    SchedulerOption,
)
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import watch
from bnncert.cli.result_views import partial_result, result_tree, show_result
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.cli.undecided import Asked
from bnncert.cli.unused import refuse_unread
from bnncert.questions.verify import bound as bound_api


@grouped
def bound(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    point: InputArgument = None,
    ball: BallOptions,
    scaling: ScalingOptions,
    method: MethodOption = "sdp",
    settings: BoundMethodOptions,
    cluster: SchedulerOption = None,
    explain: ExplainOption = False,
    json_: JsonOption = None,
    printing: PrintOptions,
) -> None:
    """Bound the margin over each rival class by one method."""
    refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, stderr=json_ == "-")
    ball = with_argument(ball, point)
    options = settings.options()
    refuse_unwritable(json_path(json_), read=(model, ball.input_, ball.labels))
    network = read_network(model, settings.sign_zero)
    points = read_points(network, ball, ball.shape, scaling)
    question = points.question(points.index)
    show_notes(points.data.notes, consoles.details)
    title = f"{model.name}, {question.title}: {question.label_text}, {question.ball_text}"
    title += f", method {method}; {limit_text(ctx, settings.timeout)}"
    limit = finite_limit(settings.timeout)
    asked = Asked(method, options, limit, question)
    with (
        with_cluster(options, cluster, consoles) as options,
        watch(consoles.watching, limit, consoles.details.later(title)) as progress,
        partial_result(consoles.details, progress),
    ):
        result = bound_api(
            question.network,
            question.region,
            question.label,
            targets=question.targets,
            method=method,
            timeout=remaining(settings.timeout),
            options=options,
            progress=progress,
        )
        progress.open()
    show_result(consoles, asked, result, explain=explain)
    if json_ is not None:
        extra = {"input": question.where, "labels": question.labels, "seed": settings.seed}
        write_json(json_, result_tree(question.network, result, question.region, extra))
