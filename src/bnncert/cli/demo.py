"""`bnncert demo`: the bundled MNIST network, verified live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bnncert.cli.grouping import grouped
from bnncert.cli.result_views import totals_text
from bnncert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bnncert.arrays import FloatArray
    from bnncert.cli.consoles import PlainConsole
    from bnncert.engine.verdict import Result
    from bnncert.model.loading import DemoData
    from bnncert.model.network import Network

#: Radii, in pixels, at which the demo searches for a counterexample to show.
ATTACK_DELTAS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)

#: The radius at which the certified network is shown beside it.
CERTIFIED_DELTA = 25.0


@grouped
def demo(
    count: Annotated[int, "How many of the 100 images."] = 10,
    delta: Annotated[float, typer.Option("--radius", help="Radius in pixels.")] = 0.25,
    timeout: Annotated[float, "Seconds per image."] = 30.0,
    network: Annotated[Literal["sparse", "dense"], "Which bundled network."] = "sparse",
) -> None:
    """Verify the bundled MNIST network on its first images and show what was found."""
    from bnncert.cli.consoles import PlainConsole

    run_demo(PlainConsole(), count=count, delta=delta, timeout=timeout, which=network)


def run_demo(
    console: PlainConsole,
    *,
    count: int,
    delta: float,
    timeout: float,
    which: Literal["sparse", "dense"],
) -> None:
    """Verify the first images, print a table, and draw one counterexample."""
    import numpy as np

    from bnncert.cli.consoles import PlainConsole
    from bnncert.cli.progress import watch
    from bnncert.model.loading import load_demo_images, load_demo_network
    from bnncert.questions.verify import verify
    from bnncert.regions import Ball
    from bnncert.report.plain_table import plain_table

    data = load_demo_images()
    if not 1 <= count <= len(data.labels):
        raise InputError(f"--count is {count}; expected 1 to {len(data.labels)}")
    if not (np.isfinite(delta) and delta >= 0):
        raise InputError(f"--radius is {delta}; expected a finite number >= 0")
    network = load_demo_network(which)
    console.say(
        f"MNIST network {'-'.join(map(str, network.sizes))}, "
        f"{100 * network.zero_fraction:.0f} % zero weights; L-inf radius {delta:g} px on "
        "data in [-1, 1]; all nine rival classes"
    )
    titles = ("image", "label", "answer", "margin", "rival", "decided by", "seconds")
    table = plain_table(*titles, left=("answer", "decided by"))
    started = time.monotonic()
    results: list[Result] = []
    with watch(PlainConsole(stderr=True)) as live:
        for i in range(count):
            region = Ball("linf", data.point(i), delta / 127.5, -1.0, 1.0)
            live.show(f"verifying image {i}", i, count)
            result = verify(network, region, int(data.labels[i]), timeout=timeout)
            results.append(result)
            table.add_row(*_row(i, int(data.labels[i]), result))
    console.print(table)
    console.say(totals_text(results, time.monotonic() - started))
    _show_counterexample(console, network, data, results, timeout)


def _row(index: int, label: int, result: Result) -> list[RenderableType]:
    import numpy as np

    from bnncert.engine.answer import lower_text, upper_text
    from bnncert.report.tables import status_text

    hardest = min(result.targets, key=lambda t: t.lower)
    found = result.counterexample
    if found is not None:
        margin, rival = f"<= {upper_text(found.value)}", found.target
        stage = result.deciding_stage
    else:
        margin = f">= {lower_text(result.lower)}" if np.isfinite(result.lower) else "-"
        rival, stage = hardest.name, hardest.stage
    return [
        str(index),
        str(label),
        status_text(result),
        margin,
        rival,
        stage,
        f"{result.seconds:.2f}",
    ]


def _show_counterexample(
    console: PlainConsole, network: Network, data: DemoData, results: list[Result], timeout: float
) -> None:
    """Draw an image beside a nearby point that the network misclassifies."""
    from bnncert.engine.methods import Options
    from bnncert.questions.verify import verify
    from bnncert.regions import Ball
    from bnncert.report.picture import picture_lines, side_by_side
    from bnncert.report.tables import number

    index = next((i for i, r in enumerate(results) if r.status == "robust"), None)
    if index is None:
        return
    label = int(data.labels[index])
    point = data.point(index)
    for delta in ATTACK_DELTAS:
        region = Ball("linf", point, delta / 127.5, -1.0, 1.0)
        result = verify(
            network,
            region,
            label,
            method="attack",
            timeout=min(timeout, 0.5),
            options=Options(seed=0),
        )
        found = result.counterexample
        if found is None:
            continue
        predicted = found.predicted
        colour = console.is_terminal and console.color_system is not None
        blocks: list[tuple[str, list[Any]]] = [
            (title, picture_lines(pixels.reshape(28, 28), -1.0, 1.0, colour=colour))
            for title, pixels in (
                (f"image {index}: {label}", point),
                (f"counterexample: {predicted}", found.point),
            )
        ]
        console.print()
        console.say(
            f"Image {index} is robust above, but at radius {delta:g} px the attack finds a "
            f"point that is classified as {predicted} (margin {number(float(found.value))}, "
            "replayed in exact arithmetic):"
        )
        for line in side_by_side(blocks):
            console.say(line)
        _show_certified(console, index, point, label, timeout)
        return


def _show_certified(
    console: PlainConsole, index: int, point: FloatArray, label: int, timeout: float
) -> None:
    """Ask the network that is trained to be certified about the same image."""
    from bnncert.engine.answer import lower_text
    from bnncert.model.loading import load_demo_network
    from bnncert.questions.verify import verify
    from bnncert.regions import Ball

    ball = Ball("linf", point, CERTIFIED_DELTA / 127.5, -1.0, 1.0)
    result = verify(load_demo_network("certified"), ball, label, timeout=timeout)
    if result.status == "robust":
        console.say(
            f"\nThe network demo:certified (train --certify 0.1) classifies image {index} as "
            f"{label} in the whole ball of radius {CERTIFIED_DELTA:g} px: margin >= "
            f"{lower_text(result.lower)}, proved in {result.seconds:.2f} s."
        )
