"""`bnncert fair`: whether protected attributes can change the class."""

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
from bnncert.questions.relations.relations import fair as fair_api


@grouped
def fair(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    protect: Annotated[
        list[str],
        typer.Option(
            "--protect",
            help="A protected feature, by name or number (NAME=V1,V2 states its values), or a "
            "one-hot group, by its name or as in 3,4,5; repeatable.",
        ),
    ],
    step: Annotated[
        float | None,
        typer.Option(
            "--step",
            help="Protected features change by multiples of this step (default: the step of the "
            "grid, else by any amount).",
        ),
    ] = None,
    table: TableOptions,
    method: MethodOption = "auto",
    settings: MethodOptions,
    cluster: SchedulerOption = None,
    outputs: RelationOutputs,
    printing: PrintOptions,
) -> None:
    """Decide whether protected attributes can change the class, with a pair of inputs if so."""
    command = RelationCommand(ctx, model, table, method, settings, cluster, outputs, printing)
    protected: list[int | tuple[int, ...]] = []
    values: dict[int, list[float]] = {}
    for text in protect:
        found, listed = command.feature(text)
        protected.append(found)
        if listed and not isinstance(found, int):
            raise InputError(f"--protect is {text!r}; a one-hot group has no values of its own")
        if listed and isinstance(found, int):
            values[found] = listed
    single = [f for f in protected if isinstance(f, int)]
    changing = {f for found in protected for f in ([found] if isinstance(found, int) else found)}
    ask = partial(
        fair_api,
        command.network,
        protected,
        command.region(changing),
        values=values,
        step={} if step is None else {f: step for f in single if f not in values},
        **command.about,
    )
    title = f"protected: {', '.join(protect)}"
    command.answer(title, ask)
