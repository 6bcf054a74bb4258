"""`bnncert bound`: how small a margin can get."""

from __future__ import annotations

from dataclasses import replace

import typer

from bnncert.commands.clock import remaining
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.options import (
    ClipOption,
    CouplingOption,
    ExplainOption,
    FormOption,
    IndexOption,
    InputOption,
    JsonOption,
    LabelOption,
    LabelsOption,
    MeanOption,
    MemoryOption,
    MethodOption,
    ModelArgument,
    NormOption,
    PixelOption,
    RadiusOption,
    RestartsOption,
    SamplesOption,
    ScaleOption,
    SeedOption,
    SignZeroOption,
    SolverOption,
    SparsityOption,
    StdOption,
    TargetsOption,
    TimeoutOption,
    read_scale,
    solver_options,
)
from bnncert.commands.output import (
    json_path,
    partial_result,
    refuse_unwritable,
    result_tree,
    show_result,
    write_json,
)
from bnncert.commands.question import read_network, read_question
from bnncert.commands.unused import refuse_unread
from bnncert.report.tables import (
    presolve_table,
    stage_table,
)
from bnncert.verification import bound as bound_api


def bound(
    ctx: typer.Context,
    model: ModelArgument,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    norm: NormOption = "linf",
    radius: RadiusOption = None,
    clip: ClipOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    targets: TargetsOption = "all",
    method: MethodOption = "sdp",
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    form: FormOption = "lattice",
    samples: SamplesOption = 10_000,
    restarts: RestartsOption = None,
    pixel_step: PixelOption = None,
    memory: MemoryOption = 4.0,
    solver: SolverOption = None,
    sparsity: SparsityOption = None,
    coupling: CouplingOption = "auto",
    explain: ExplainOption = False,
    json_: JsonOption = None,
) -> None:
    """Bound the margin over each rival class by one method."""
    refuse_unread(ctx, method)
    options = solver_options(seed, form, samples, restarts, pixel_step, memory)
    options = replace(options, solver=solver, sparsity=sparsity, coupling=coupling)
    refuse_unwritable(json_path(json_), read=(model, input_, labels))
    network = read_network(model, sign_zero)
    question = read_question(
        network,
        input_,
        index,
        label,
        labels,
        norm,
        radius,
        clip,
        targets,
        read_scale(scale, mean, std),
    )
    network = question.network
    console = PlainConsole(stderr=json_ == "-")
    title = f"{model.name}, {question.title}: {question.label_text}, {question.region.describe()}"
    title += f", method {method}"
    with partial_result(console, title), watch(PlainConsole(stderr=True)) as progress:
        result = bound_api(
            network,
            question.region,
            question.label,
            targets=question.targets,
            method=method,
            timeout=remaining(timeout),
            options=options,
            progress=progress,
        )
    show_result(console, title, result)
    if explain:
        console.print(presolve_table(result))
        console.print(stage_table(result))
    extra = {"input": question.where, "labels": question.labels, "seed": seed}
    if json_ is not None:
        write_json(json_, result_tree(network, result, question.region, extra))
