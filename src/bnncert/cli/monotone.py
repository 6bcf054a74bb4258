"""`bnncert monotone`: whether a larger value of a feature can undo a decision or lower a score."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bnncert.cli.grouping import grouped
from bnncert.cli.options import (
    MethodOption,
    MethodOptions,
    ModelArgument,
    PrintOptions,
    SchedulerOption,
)
from bnncert.cli.relation_command import RelationCommand, RelationOutputs, TableOptions
from bnncert.errors import InputError
from bnncert.questions.relations.relations import monotone as monotone_api


@grouped
def monotone(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    feature: Annotated[
        str,
        typer.Option(
            "--feature",
            help="The feature, by name or number; NAME=V1,V2,.. states its values.",
        ),
    ],
    decreasing: Annotated[
        bool,
        typer.Option("--decreasing", help="The class or score is kept if the feature decreases."),
    ] = False,
    label: Annotated[
        int | None,
        typer.Option("--label", help="The class that is kept (default: the second of two)."),
    ] = None,
    score: Annotated[
        int | None,
        typer.Option("--score", help="The score that does not fall, instead of a class."),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            "--step",
            help="Only changes by multiples of this step count (default: the step of the grid, "
            "else any change).",
        ),
    ] = None,
    table: TableOptions,
    method: MethodOption = "auto",
    settings: MethodOptions,
    cluster: SchedulerOption = None,
    outputs: RelationOutputs,
    printing: PrintOptions,
) -> None:
    """Decide whether a class or score is monotone in a feature, with a pair of inputs if not."""
    command = RelationCommand(ctx, model, table, method, settings, cluster, outputs, printing)
    found, values = command.feature(feature)
    if not isinstance(found, int):
        raise InputError(f"--feature is {feature}; a one-hot group has no order")
    ask = partial(
        monotone_api,
        command.network,
        found,
        command.region({found}),
        increasing=not decreasing,
        label=label,
        score=score,
        step=step,
        values=values or None,
        **command.about,
    )
    title = f"{'decreasing' if decreasing else 'increasing'} in {command.columns.names[found]}"
    command.answer(title, ask)
