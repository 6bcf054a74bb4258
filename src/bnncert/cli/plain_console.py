"""The consoles of the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console


class PlainConsole(Console):
    """A console that does not interpret markup or emoji codes in names from files."""

    def __init__(
        self, *, stderr: bool = False, width: int | None = None, quiet: bool = False
    ) -> None:
        super().__init__(
            stderr=stderr, width=width, quiet=quiet, markup=False, emoji=False, highlight=False
        )

    def later(self, text: str) -> Callable[[], None]:
        """Return what prints a line."""
        return lambda: self.print(text, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Raise an exception for :func:`bnncert.cli.program.main`, which sets the exit code."""
        raise BrokenPipeError


def wide_console(width: int = 140, *, stderr: bool = False, quiet: bool = False) -> PlainConsole:
    """Return a console that is wide enough for a table if there is no terminal."""
    console = PlainConsole(stderr=stderr, quiet=quiet)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=width, quiet=quiet)


def say_interrupted(console: Console, done: int, total: int, place: object) -> None:
    """Print after Ctrl-C where the finished instances are stored."""
    console.print(
        f"{done} of {total} instances are in {place}; the same command continues from there",
        soft_wrap=True,
    )
    # After Ctrl-C the process ends without flushing its buffers.
    sys.stdout.flush()
