"""The command line: it finds the command, runs it, and ends with an exit code and no traceback."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from bnncert.cli.catalogue import ENTRIES, Entry, TopicCommand, write_commands
from bnncert.cli.completion import SHELLS, install_script, prepare, script, with_shell
from bnncert.cli.exit_codes import CODES, INTERRUPTED, ExitCode, leaving_on_interrupt
from bnncert.cli.grouping import usage_text
from bnncert.cli.project_defaults import ProjectDefaults, find_defaults
from bnncert.cli.time_limit import is_command_line
from bnncert.errors import BnncertError, InputError
from bnncert.version import __version__


class _InterruptedError(Exception):
    """Ctrl-C inside a command."""


class _SystemError(Exception):
    """The operating system raised an error, most often while output was written."""


class _Commands(TyperGroup):
    """The commands.

    `--help` shows the summaries of the catalogue; a command is imported when it is called.  Some
    errors are renamed, because versions of typer treat them differently.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command."""
        arguments, options = with_shell(args), self.params
        if arguments and not arguments[0].startswith("-"):
            # There are none.  Some versions of typer would import pydantic to convert the defaults,
            # which takes longer than all the rest of `bnncert verify --help`.
            self.params, self.add_help_option = [], False
        try:
            return list(super().parse_args(ctx, arguments))
        finally:
            self.params, self.add_help_option = options, True

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the summaries by topic."""
        write_commands(formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names, and the other arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, None, rest
        command = _imported(name)
        if not ctx.resilient_parsing and not _ENTRIES[name].hidden:
            _set_defaults(ctx, name, command, rest)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the first argument names."""
        try:
            try:
                outcome = super().invoke(ctx)
            except typer.Exit:
                # The command has an answer; a full disk counts more than its exit code.
                sys.stdout.flush()
                raise
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            raise _InterruptedError from error
        except BnncertError:
            # A file that is missing is also an OSError, and its message is already complete.
            raise
        except OSError as error:
            raise _SystemError from error
        return outcome


class _Command(TopicCommand):
    """A command whose errors about defaults of the project name their file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option as the value of another: `--json --explain` would write such a file."""
        takes = {f for p in self.params if getattr(p, "is_flag", None) is False for f in p.opts}
        for option, value in pairwise(args):
            if option in takes and value.startswith("--") and value != "--":
                raise typer.BadParameter(f"{option} needs a value, and {value} is an option", ctx)
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with leaving_on_interrupt():
            # Nearly every command needs it; what else one needs, it imports itself.
            importlib.import_module("numpy")
        try:
            return super().invoke(ctx)
        except InputError as error:
            defaults: ProjectDefaults | None = ctx.meta.get(_DEFAULTS)
            named = error if defaults is None else defaults.naming_file(error, ctx)
            if named is error:
                raise
            raise named from error


#: Where contexts keep the defaults of the project.
_DEFAULTS = "bnncert.defaults"

_STYLE: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}

app = typer.Typer(
    name="bnncert",
    cls=_Commands,
    help="Verify binary neural networks: robust with a bound, or a counterexample that replays.",
    no_args_is_help=True,
    epilog=f"Exit codes of all questions: {CODES}.",
    **_STYLE,
)


def _tell(text: str | Callable[[str], str]) -> Any:
    """Return a callback of an option that prints a text, perhaps about its value, and exits."""

    def tell(asked: Any) -> None:
        if asked:
            print(text if isinstance(text, str) else text(asked))
            raise typer.Exit

    return tell


@app.callback()
def _global_options(
    name: Annotated[
        bool,
        typer.Option("--name", help="Print the name.", is_eager=True, callback=_tell("bnncert")),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_tell(__version__)
        ),
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            help=f"Install the completion for {', '.join(SHELLS[:3])} (default: this shell).",
            is_eager=True,
            callback=_tell(install_script),
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            help="Print the script of the completion.",
            is_eager=True,
            callback=_tell(script),
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print only answers, and errors.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print more details.")] = False,
) -> None:
    pass


#: The commands by the name that the user types.
_ENTRIES: dict[str, Entry] = {entry.name.replace("_", "-"): entry for entry in ENTRIES}


def _summary_only() -> None:
    """Represent a command whose module is not imported."""


for _name, _entry in _ENTRIES.items():
    app.command(_name, help=_entry.summary, hidden=_entry.hidden)(_summary_only)


def _imported(name: str) -> Any:
    """Import a command with its options, which only the command that runs needs."""
    with leaving_on_interrupt():
        function = _ENTRIES[name].function
    single = typer.Typer(**_STYLE)
    single.command(name, cls=_Command, epilog=_ENTRIES[name].example)(function)
    return typer.main.get_command(single)


def _set_defaults(ctx: Any, name: str, command: Any, arguments: list[str]) -> None:
    """Give the command the defaults of the project; with --verbose print where they are from."""
    defaults = find_defaults(Path.cwd())
    if defaults is None:
        return
    options = {
        flag: parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for flag in parameter.opts
        if flag.startswith("--")
    }
    values = defaults.values(ctx, name, options)
    # The context of the command takes its defaults from this map.
    ctx.default_map = {name: values}
    ctx.meta[_DEFAULTS] = defaults
    if ctx.params.get("verbose") or not {"-v", "--verbose"}.isdisjoint(arguments):
        shown = ", ".join(f"{options_name} = {value}" for options_name, value in values.items())
        print(f"defaults of {defaults.path}: {shown or 'none'}", file=sys.stderr)


def _usage_error() -> type[Exception]:
    """Return the base class of usage errors, whose module differs between versions of typer."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> None:
    """Run the command line; every expected error is one line on stderr."""
    usage_error = _usage_error()
    prepare()
    warnings.showwarning = _show_warning
    # OpenBLAS may set the flag of invalid operations although all numbers are finite.
    warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
    code: int = ExitCode.BAD_INPUT
    try:
        outcome = app(prog_name="bnncert", standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
    except BnncertError as error:
        _complain(str(error))
    except (_InterruptedError, KeyboardInterrupt, typer.Abort):
        _end_interrupted()
    except MemoryError:
        _complain("out of memory; try a smaller batch (--samples) or model")
    except (_SystemError, OSError) as error:
        # Flushing the rest of the buffer must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        cause = error.__cause__ or error
        if isinstance(cause, BrokenPipeError):
            # The reader of a pipe has closed it, which is not an error.
            code = 0
        else:
            _complain(_system_text(cause))
    except typer.Exit as error:
        code = error.exit_code
    except usage_error as error:
        shown = (name for name, entry in _ENTRIES.items() if not entry.hidden)
        text = usage_text(error, shown, _imported)
        if type(error).__name__ == "NoArgsIsHelpError" or not text:
            # Without arguments the message would be the whole help text.
            text = "no command given; see bnncert --help"
        _complain(text)
    if code == INTERRUPTED:
        # While typer reads the arguments, it converts Ctrl-C to an exit code.
        _end_interrupted()
    _leave(code)


def _leave(code: int) -> None:
    """End the process with that code."""
    others = any(thread is not threading.current_thread() for thread in threading.enumerate())
    if others and is_command_line():
        # A solver that ignored its time limit is still running.  C++ aborts at a normal exit if a
        # thread is running.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def _system_text(error: BaseException) -> str:
    """Return the message of the operating system, with the name of what could not be written."""
    if isinstance(error, OSError) and error.filename is None and error.errno == errno.ENOSPC:
        # Files are written by functions that name them.
        return f"standard output: cannot be written ({error.strerror})"
    return str(error)


def _end_interrupted() -> NoReturn:
    _complain("interrupted")
    sys.stderr.flush()
    # Threads of a solver may still run, and C++ aborts at a normal exit if they do.
    os._exit(INTERRUPTED)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the place in the source that Python adds."""
    _complain(f"warning: {message}")


def _complain(text: str) -> None:
    print("bnncert: " + " ".join(text.split()), file=sys.stderr)


if __name__ == "__main__":
    main()
