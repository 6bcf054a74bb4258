"""Errors in the options: those that are given but not used, and those that do not exist.

Which options a method reads is stated by its class (:attr:`Method.reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import typer

from bnncert.cli.grouping import value_source
from bnncert.errors import InputError

#: Parameters of the commands that set the field of `Options` of the same name, except the seed: a
#: method without randomness has the same answer for every seed.
OPTION_FIELDS = {
    *("form", "samples", "memory", "processes"),
    *("solver", "sparsity", "coupling", "cluster"),
}

#: Parameters that describe a ball around a point; a VNN-LIB query states its own region.
BALL_PARAMETERS = (
    *("input_", "index", "label", "labels", "norm", "radius", "within", "value", "grid", "clip"),
    *("scale", "normalise", "rivals", "ties"),
)


def given_options(ctx: typer.Context) -> dict[str, str]:
    """Find the flags that the user gave, and not a default, by the name of the parameter."""
    flags = {parameter.name or "": parameter.opts[0] for parameter in ctx.command.params}
    chosen = ("COMMANDLINE", "ENVIRONMENT")
    return {name: flag for name, flag in flags.items() if value_source(ctx, name) in chosen}


def refuse_unread(ctx: typer.Context, method: str) -> None:
    """Raise if an option is given that the method does not read."""
    from bnncert.engine.methods import REGISTRY

    engine = REGISTRY.make(method)
    for name, flag in given_options(ctx).items():
        owners: tuple[str, ...] = (method,)
        if name in OPTION_FIELDS:
            owners = REGISTRY.readers(name)
        if engine.name not in owners:
            raise InputError(f"method {method} does not use {flag}; it belongs to {listed(owners)}")


def refuse_beside_query(ctx: typer.Context, query: str) -> None:
    """Raise if options of a ball are given together with a VNN-LIB query."""
    given = given_options(ctx)
    flags = [given[name] for name in BALL_PARAMETERS if name in given]
    if flags and not query.endswith((".vnnlib", ".vnnlib.gz")):
        raise InputError(
            f"{query}: neither points (.npy, .npz, .csv, an image or a folder of them) nor a query "
            "(.vnnlib)"
        )
    if flags:
        verb = "describes" if len(flags) == 1 else "describe"
        raise InputError(
            f"{listed(flags)} {verb} a ball around a point, but {query} states the whole query; "
            "leave out one of them"
        )


def refuse_together(ctx: typer.Context, chosen: str, unused: Mapping[str, str]) -> None:
    """Raise if options are given that are not used with `chosen`; `unused` has the reasons."""
    given = given_options(ctx)
    if chosen not in given:
        return
    for name, reason in unused.items():
        if name in given:
            raise InputError(f"{given[name]} is not used with {given[chosen]}: {reason}")


def refuse_without(ctx: typer.Context, needed: str, unused: Sequence[str]) -> None:
    """Raise if options are given without the option that they belong to."""
    given = given_options(ctx)
    flags = {p.name: p.opts[0] for p in ctx.command.params}
    for name in unused:
        if name in given and needed not in given:
            raise InputError(f"{given[name]} belongs to {flags[needed]}, which was not given")


def listed(names: Sequence[str]) -> str:
    """Join names as in "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


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
        return f"No such option: {option}; it belongs to bnncert {listed(owners)}"
    # What typer proposes has similar letters, and often nothing else.
    return text if "--" in text.partition("(")[2] else f"{text}; see {context.command_path} --help"


def _flags(command: Any) -> set[str]:
    """Collect the flags of a command."""
    options = (p for p in command.params if p.param_type_name == "option")
    return {flag for option in options for flag in option.opts}
