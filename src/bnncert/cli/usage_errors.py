"""Errors in the arguments in the words of this program: which option was meant, and who has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

#: What other verifiers, and other commands, call an option.
SYNONYMS = {
    "--radius": ("--eps", "--epsilon", "--delta", "--perturbation", "--rad", "-e", "-r"),
    "--timeout": ("--time", "--time-limit", "--limit", "--max-time"),
    "--input": ("--image", "--point", "--sample", "--x", "--data"),
    "--data": ("--images", "--dataset", "--input"),
    "--norm": ("--p", "--distance", "--metric"),
    "--rivals": ("--target", "--targets"),
    "--processes": ("--workers", "--jobs", "--threads", "-j"),
    "--certificate": ("--proof",),
    "--out": ("--output",),
}


def usage_text(error: Any, names: Iterable[str], command_of: Callable[[str], Any]) -> str:
    """Return the message of an error of typer; an unknown option names the one that was meant.

    `command_of` makes the command of a name; all of them are made only if one has the option.
    """
    text = str(error.format_message() if hasattr(error, "format_message") else error)
    # Versions of typer that convert values with pydantic show the name of its exception.
    text = text.replace("Value error, ", "")
    option = getattr(error, "option_name", None)
    if type(error).__name__ != "NoSuchOption" or option is None or error.ctx is None:
        return text
    known = _flags(error.ctx.command)
    meant = [flag for flag, others in SYNONYMS.items() if option in others and flag in known]
    if meant:
        return f"No such option: {option}; did you mean {meant[0]}?"
    owners = [name for name in names if option in _flags(command_of(name))]
    if owners:
        from bnncert.cli.unused import listed

        return f"No such option: {option}; it belongs to bnncert {listed(owners)}"
    return text


def _flags(command: Any) -> set[str]:
    """Collect the flags of a command."""
    options = (p for p in command.params if p.param_type_name == "option")
    return {flag for option in options for flag in option.opts}
