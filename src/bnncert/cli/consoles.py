"""What a command prints where: the answer, details around it, and progress.

With -q only the answer is printed, with -v further details.  Both are options of the commands and
of the program itself (`bnncert -q verify ...`).
"""

from __future__ import annotations

from dataclasses import dataclass

import typer

from bnncert.cli.options import TalkOptions
from bnncert.cli.plain_console import PlainConsole, wide_console
from bnncert.errors import InputError


@dataclass(frozen=True)
class Talk:
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
        ctx: typer.Context, options: TalkOptions, *, stderr: bool = False, width: int | None = None
    ) -> Talk:
        """Return the consoles; `stderr` if the standard output is for JSON.

        With a `width` the consoles have this width if there is no terminal.
        """
        program = ctx.find_root().params
        quiet = options.quiet or bool(program.get("quiet"))
        verbose = options.verbose or bool(program.get("verbose"))
        if quiet and verbose:
            raise InputError("--quiet and --verbose contradict each other; give one")
        watching = PlainConsole(stderr=True, quiet=quiet)
        if width is None:
            answer = PlainConsole(stderr=stderr)
            return Talk(answer, PlainConsole(stderr=stderr, quiet=quiet), watching, quiet, verbose)
        return Talk(wide_console(width), wide_console(width, quiet=quiet), watching, quiet, verbose)
