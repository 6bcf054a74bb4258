"""What the commands print to, and their progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class PlainConsole(Console):
    """A console that prints names from files as they are, whatever they look like."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Leave it to :func:`main`, which knows the exit codes."""
        raise BrokenPipeError


def wide_console() -> Console:
    """Return a console that is wide enough for a table where no terminal sets its width."""
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=140)


class ProgressBar:
    """What a command reports its progress to; it makes room for output in between."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show what is being worked on."""
        self._bar.update(self._task, description=text, completed=done, total=total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take the bar away: while it is shown, it diverts standard output to its own console."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


@contextmanager
def watch(console: Console) -> Iterator[ProgressBar]:
    """Show progress on a terminal, and nothing anywhere else."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        yield ProgressBar(bar)


@contextmanager
def counting(console: Console, word: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show on a terminal how many instances are done, and a text on the last one."""
    columns = (
        TextColumn(word),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(word, total=None, text="")

        def update(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, text=text)

        yield update


def say_interrupted(console: Console, done: int, total: int, place: object) -> None:
    """Say after Ctrl-C what is kept where."""
    console.print(
        f"{done} of {total} instances are in {place}; the same command goes on from there",
        soft_wrap=True,
    )
    # The end after Ctrl-C is abrupt and empties no buffers.
    sys.stdout.flush()
