"""The command line.  Exit codes: 0 a verdict was produced, 2 bad input, 130 interrupted."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from bnncert.commands.bound import bound
from bnncert.commands.check import check
from bnncert.commands.clock import is_command_line
from bnncert.commands.convert import convert
from bnncert.commands.experiment import experiment
from bnncert.commands.info import info
from bnncert.commands.radius import radius
from bnncert.commands.report import report
from bnncert.commands.run import run
from bnncert.commands.showing import demo, methods
from bnncert.commands.train import train
from bnncert.commands.verify import verify
from bnncert.commands.vnncomp import vnncomp, vnncomp_instance, vnncomp_prepare
from bnncert.errors import BnncertError

#: The exit code after Ctrl-C.
INTERRUPTED = 130


class _InterruptedError(Exception):
    """Ctrl-C inside a command."""


class _SystemError(Exception):
    """The operating system refused something, most often to take the output."""


class _Commands(TyperGroup):
    """The commands; some errors are renamed, because versions of typer treat them differently."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            raise _InterruptedError from error
        except OSError as error:
            raise _SystemError from error
        return outcome


app = typer.Typer(
    name="bnncert",
    cls=_Commands,
    help="Verify binary neural networks: robust with a bound, or a counterexample that replays.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for _command in (
    verify,
    check,
    bound,
    radius,
    run,
    experiment,
    report,
    vnncomp,
    train,
    info,
    methods,
    convert,
    demo,
):
    app.command()(_command)

# For the scripts of VNN-COMP.
app.command(hidden=True)(vnncomp_instance)
app.command(hidden=True)(vnncomp_prepare)


def _usage_error() -> type[Exception]:
    """Return typer's base of usage errors (its module differs between versions of typer)."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> None:
    """Run the command line; every foreseen error is one line on stderr."""
    usage_error = _usage_error()
    warnings.showwarning = _show_warning
    code = 2
    try:
        outcome = app(standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
    except BnncertError as error:
        _complain(str(error))
    except (_InterruptedError, KeyboardInterrupt, typer.Abort):
        _end_interrupted()
    except MemoryError:
        _complain("out of memory; try a smaller batch (--restarts, --samples) or model")
    except (_SystemError, OSError) as error:
        # What is still in the buffer must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        cause = error.__cause__ or error
        if isinstance(cause, BrokenPipeError):
            # The reader of a pipe is gone: nothing is left to say to it.
            code = 0
        else:
            _complain(str(cause))
    except typer.Exit as error:
        code = error.exit_code
    except usage_error as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if type(error).__name__ == "NoArgsIsHelpError" or not text:
            # Bare `bnncert`: the message would be the whole help text.
            text = "no command given; see bnncert --help"
        _complain(text)
    if code == INTERRUPTED:
        # While the arguments are read, before any command, typer makes Ctrl-C an exit code.
        _end_interrupted()
    _leave(code)


def _leave(code: int) -> None:
    """End the process with that code."""
    others = any(thread is not threading.current_thread() for thread in threading.enumerate())
    if others and is_command_line():
        # A solver that ignored its time limit is still at work: nobody waits for it, and C++ aborts
        # when it finds such a thread.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def _end_interrupted() -> NoReturn:
    _complain("interrupted")
    sys.stderr.flush()
    # At once: a solver's threads may still be at work, and C++ aborts when it finds them.
    os._exit(INTERRUPTED)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning as one line, without the place in the source that Python adds."""
    _complain(f"warning: {message}")


def _complain(text: str) -> None:
    print("bnncert: " + " ".join(text.split()), file=sys.stderr)


if __name__ == "__main__":
    main()
