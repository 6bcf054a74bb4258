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
    "--memory-limit": ("--memory", "--max-memory"),
    "--norm brightness": ("--brightness",),
    "--norm contrast": ("--contrast",),
    "--norm patch": ("--patch",),
    "--norm shift": ("--shift", "--translate"),
}

#: What other verifiers name by an option, and here is an argument.
ARGUMENTS = {
    "the query after the model, as in bnncert verify MODEL QUERY.vnnlib": (
        *("--query", "--vnnlib", "--property", "--spec"),
    ),
    "the model first, as in bnncert verify MODEL": ("--onnx", "--net", "--network"),
    "the new file last, as in bnncert convert MODEL NEW.onnx": ("--out", "-o"),
}


def usage_text(error: Any, names: Iterable[str], command_of: Callable[[str], Any]) -> str:
    """Return the message of an error of typer; an unknown option names the one that was meant.

    `command_of` makes the command of a name; all of them are made only if one has the option.
    """
    text = str(error.format_message() if hasattr(error, "format_message") else error)
    # Versions of typer that convert values with pydantic show the name of its exception.
    text = text.replace("Value error, ", "")
    kind, context = type(error).__name__, getattr(error, "ctx", None)
    if kind == "MissingParameter" and context is not None:
        return f"{text.rstrip('.')}; see {context.command_path} --help"
    option = getattr(error, "option_name", None)
    if kind != "NoSuchOption" or option is None or context is None:
        return text
    known = _flags(context.command)
    for flag, others in SYNONYMS.items():
        if option in others and flag.split()[0] in known:
            return f"No such option: {option}; did you mean {flag}?"
    for way, others in ARGUMENTS.items():
        if option in others and f"bnncert {context.command.name} " in way:
            return f"No such option: {option}; give {way}"
    owners = [name for name in names if option in _flags(command_of(name))]
    if owners:
        from bnncert.cli.unused import listed

        return f"No such option: {option}; it belongs to bnncert {listed(owners)}"
    # What typer proposes has similar letters, and often nothing else.
    return text if "--" in text.partition("(")[2] else f"{text}; see {context.command_path} --help"


def _flags(command: Any) -> set[str]:
    """Collect the flags of a command."""
    options = (p for p in command.params if p.param_type_name == "option")
    return {flag for option in options for flag in option.opts}
