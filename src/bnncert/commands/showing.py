"""`bnncert methods` and `bnncert demo`: the table of methods and a demonstration."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bnncert.commands.console import PlainConsole
from bnncert.commands.demo import run_demo
from bnncert.report.tables import (
    methods_table,
)


def methods() -> None:
    """Print the methods, what they promise and what they need."""
    console = PlainConsole()
    if not console.is_terminal:
        console = PlainConsole(width=140)
    console.print(methods_table())


def demo(
    count: Annotated[int, typer.Option("--count", help="How many of the 100 images.")] = 10,
    delta: Annotated[float, typer.Option("--delta", help="Radius in pixels of 127.5.")] = 0.25,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds per image.")] = 30.0,
    network: Annotated[
        Literal["sparse", "dense"], typer.Option("--network", help="Which bundled network.")
    ] = "sparse",
) -> None:
    """Verify the bundled MNIST network on its first images and show what was found."""
    run_demo(PlainConsole(), count=count, delta=delta, timeout=timeout, which=network)
