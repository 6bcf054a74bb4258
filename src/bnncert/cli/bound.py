"""`bnncert bound`: a lower bound of the margin over each rival."""

from __future__ import annotations

from functools import partial

import typer

from bnncert.cli.answer_view import begin_at
from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    BallOptions,
    BoundMethodOptions,
    ExplainOption,
    JsonOption,
    ModelOptions,
    Outputs,
    PrintOptions,
    ScalingOptions,
)
from bnncert.cli.result_views import ResultView, question_tree
from bnncert.cli.time_limit import finite_limit


@grouped
def bound(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    ball: BallOptions,
    scaling: ScalingOptions,
    settings: BoundMethodOptions,
    explain: ExplainOption = False,
    json_: JsonOption = None,
    printing: PrintOptions,
) -> None:
    """Bound the margin over each rival class by one method."""
    from bnncert.cli.command_question import read_points
    from bnncert.cli.undecided import Asked
    from bnncert.questions.verify import bound as bound_api

    outputs, method = Outputs(json_=json_), settings.method
    ball, consoles = begin_at(ball, ctx, source, settings, outputs, printing)
    options = settings.options()
    network = source.read(settings.sign_zero)
    points = read_points(network, ball, ball.shape, scaling)
    question = points.question(points.index)
    consoles.details.notes(points.data.notes)
    asked = Asked(method, options, finite_limit(settings.timeout), question)
    stated = {"input": question.where, "labels": question.labels, "seed": settings.seed}
    about = partial(question_tree, question.network, question.region, **stated)
    with settings.connected(consoles.watching.say) as options:
        ResultView(consoles, outputs, about, asked, explain).ask(
            ctx,
            f"{source.model.name}, {question.heading}, method {method}",
            settings.timeout,
            lambda certificate, **how: bound_api(
                *(question.network, question.region, question.label),
                rivals=question.rivals,
                method=method,
                options=options,
                **how,
            ),
        )
