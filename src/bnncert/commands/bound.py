"""`bnncert bound`: a lower bound of the margin over each adversarial class."""

from __future__ import annotations

import typer

from bnncert.commands.clock import remaining
from bnncert.commands.cluster import with_cluster
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.grouping import grouped
from bnncert.commands.image_folders import show_notes
from bnncert.commands.options import (
    BallOptions,
    BoundMethodOptions,
    ExplainOption,
    InputArgument,
    JsonOption,
    MethodOption,
    ModelArgument,
    ScalingOptions,
    SchedulerOption,
)
from bnncert.commands.output import json_path, refuse_unwritable, write_json
from bnncert.commands.question import read_network, read_points, with_argument
from bnncert.commands.results import partial_result, result_tree, show_result
from bnncert.commands.unused import refuse_unread
from bnncert.report.tables import elimination_table, presolve_table, stage_table
from bnncert.verification import bound as bound_api


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
) -> None:
    """Bound the margin over each rival class by one method."""
    refuse_unread(ctx, method)
    ball = with_argument(ball, point)
    options = settings.options()
    refuse_unwritable(json_path(json_), read=(model, ball.input_, ball.labels))
    network = read_network(model, settings.sign_zero)
    points = read_points(network, ball, ball.shape, scaling)
    question = points.question(points.index)
    console = PlainConsole(stderr=json_ == "-")
    show_notes(points, console)
    title = f"{model.name}, {question.title}: {question.label_text}, {question.region.describe()}"
    title += f", method {method}"
    with (
        with_cluster(options, cluster) as options,
        partial_result(console, title),
        watch(PlainConsole(stderr=True)) as progress,
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
    show_result(console, title, result)
    if explain:
        console.print(presolve_table(result))
        eliminated = any("elimination" in t.details for t in result.targets)
        console.print(elimination_table(result) if eliminated else stage_table(result))
    extra = {"input": question.where, "labels": question.labels, "seed": settings.seed}
    write_json(json_, result_tree(question.network, result, question.region, extra))
