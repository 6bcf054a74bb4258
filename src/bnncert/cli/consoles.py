"""What a command prints where: the answer, details around it, and progress.

With -q only the answer is printed, with -v further details.  Both are options of the commands and
of the program itself (`bnncert -q verify ...`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import typer
from rich.console import Console, RenderableType

from bnncert.cli.options import PrintOptions
from bnncert.errors import InputError


class PlainConsole(Console):
    """A console that does not interpret markup or emoji codes in names from files."""

    def __init__(
        self, *, stderr: bool = False, width: int | None = None, quiet: bool = False
    ) -> None:
        super().__init__(
            stderr=stderr, width=width, quiet=quiet, markup=False, emoji=False, highlight=False
        )

    def say(self, text: RenderableType, *, style: str = "", end: str = "\n") -> None:
        """Print a line, which is not broken where a terminal or a file ends it."""
        self.print(text, soft_wrap=True, style=style or None, end=end)

    def later(self, text: str) -> Callable[[], None]:
        """Give what prints a line when it is called, for a line that waits for the answer."""
        return lambda: self.say(text)

    def notes(self, notes: Iterable[str]) -> None:
        """Print remarks for the user, a line for each."""
        for note in notes:
            self.say(f"note: {note}")

    def on_broken_pipe(self) -> None:
        """Raise an exception for :func:`bnncert.cli.program.main`, which sets the exit code."""
        raise BrokenPipeError


def wide_console(width: int = 140, *, stderr: bool = False, quiet: bool = False) -> PlainConsole:
    """Return a console that is wide enough for a table if there is no terminal."""
    console = PlainConsole(stderr=stderr, quiet=quiet)
    return console if console.is_terminal else PlainConsole(stderr=stderr, width=width, quiet=quiet)


def say_interrupted(console: PlainConsole, done: int, total: int, place: object) -> None:
    """Print after Ctrl-C where the finished instances are stored."""
    console.say(
        f"{done} of {total} instances are in {place}; the same command continues from there"
    )
    # After Ctrl-C the process ends without flushing its buffers.
    sys.stdout.flush()


@dataclass(frozen=True)
class Consoles:
    """The consoles of one command."""

    #: For the answer, which is always printed.
    answer: PlainConsole
    #: For everything around the answer; silent with -q.
    details: PlainConsole
    #: For progress and remarks on stderr; silent with -q.
    watching: PlainConsole
    quiet: bool
    verbose: bool

    @staticmethod
    def of(
        ctx: typer.Context, options: PrintOptions, *, stderr: bool = False, width: int | None = None
    ) -> Consoles:
        """Return the consoles; `stderr` if the standard output is for JSON.

        With a `width` the consoles have this width if there is no terminal.
        """
        program = ctx.find_root().params
        quiet = options.quiet or bool(program.get("quiet"))
        verbose = options.verbose or bool(program.get("verbose"))
        if quiet and verbose:
            raise InputError("--quiet and --verbose contradict each other; give one")
        make = PlainConsole if width is None else partial(wide_console, width)
        answer, details = make(stderr=stderr), make(stderr=stderr, quiet=quiet)
        return Consoles(answer, details, PlainConsole(stderr=True, quiet=quiet), quiet, verbose)
