"""The consoles and progress bars of the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class PlainConsole(Console):
    """A console that does not interpret markup or emoji codes in names from files."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Raise an exception for :func:`bnncert.cli.main`, which sets the exit code."""
        raise BrokenPipeError


def wide_console(width: int = 140, *, stderr: bool = False) -> PlainConsole:
    """Return a console that is wide enough for a table if there is no terminal."""
    console = PlainConsole(stderr=stderr)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=width)


def terminal_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar with these columns and the elapsed time, visible only on a terminal."""
    hidden = not console.is_terminal
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=hidden)


class ProgressBar:
    """A progress bar that can be hidden while other output is printed."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show the current step."""
        self._bar.update(self._task, description=text, completed=done, total=total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar, because it redirects standard output to its own console."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


@contextmanager
def watch(console: Console) -> Iterator[ProgressBar]:
    """Show progress on a terminal only."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30)
    with terminal_bar(console, *columns) as bar:
        yield ProgressBar(bar)


@contextmanager
def counting(console: Console, word: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show on a terminal the number of finished instances and a text about the last one."""
    columns = BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("{task.fields[text]}")
    with terminal_bar(console, TextColumn(word), *columns) as bar:
        task = bar.add_task(word, total=None, text="")

        def update(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, text=text)

        yield update


def say_interrupted(console: Console, done: int, total: int, place: object) -> None:
    """Print after Ctrl-C where the finished instances are stored."""
    console.print(
        f"{done} of {total} instances are in {place}; the same command continues from there",
        soft_wrap=True,
    )
    # After Ctrl-C the process ends without flushing its buffers.
    sys.stdout.flush()
