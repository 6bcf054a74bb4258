"""The options of commands: groups of them as one dataclass, and errors in them.

typer makes one option of each parameter of a function, so a command with many options would be a
function with many parameters.  :func:`grouped` shows typer the fields of such a dataclass instead.

Options that are given but not used are refused, and a message about one that does not exist names
the one that was meant.  Which options a method reads is stated by its class (:attr:`Method.reads`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from bnncert.cli.catalogue import EXPERT, show_all
from bnncert.errors import InputError

KEYWORD = inspect.Parameter.KEYWORD_ONLY

HelpAllOption = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show this message with the options for experts and exit.",
        is_eager=True,
        callback=show_all,
    ),
]


def flag_of(name: str) -> str:
    """Return the name of an option on the command line from that of its parameter."""
    return "--" + name.strip("_").replace("_", "-")


def value_source(ctx: Any, name: str) -> str:
    """Return where typer found a parameter: COMMANDLINE, ENVIRONMENT, DEFAULT_MAP or DEFAULT."""
    source = ctx.get_parameter_source(name)
    # Its name, because versions of typer have enumerations of their own.
    return "" if source is None else str(source.name)


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its dataclass parameters as parameters of their own.

    The fields are annotated for typer, ``Annotated[TYPE, typer.Option(...)]``, or with the help of
    an option of their own name alone, ``Annotated[TYPE, "HELP"]``.  They replace the parameter at
    its place, so that `--help` lists them there.  A group may have other groups as fields.
    """
    flat: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    # get_type_hints is not used: before Python 3.11 it hides options whose default is None.
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind):
            groups[parameter.name] = kind
            flat += _parameters(kind)
        else:
            stated = _stated(parameter.name, kind)
            flat.append(parameter.replace(kind=KEYWORD, annotation=stated))

    if any(_is_expert(parameter) for parameter in flat):
        flat.append(inspect.Parameter("help_all", KEYWORD, default=False, annotation=HelpAllOption))

    @wraps(function)
    def command(**values: Any) -> None:
        values.pop("help_all", None)
        made = {name: _made(kind, values) for name, kind in groups.items()}
        function(**values, **made)

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return command


def _parameters(kind: Any) -> list[inspect.Parameter]:
    """Make the fields of a dataclass parameters, which typer reads as options."""
    hints, found = get_type_hints(kind, include_extras=True), []
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            found += _parameters(hint)
            continue
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        stated = _stated(field.name, hint)
        found.append(inspect.Parameter(field.name, KEYWORD, default=default, annotation=stated))
    return found


def _made(kind: Any, values: dict[str, Any]) -> Any:
    """Make a group, and the groups that are its fields, of the values of their options."""
    hints = get_type_hints(kind)
    given = {
        name: _made(hint, values) if is_dataclass(hint) else values.pop(name)
        for name, hint in ((field.name, hints[field.name]) for field in fields(kind))
    }
    return kind(**given)


def _stated(name: str, kind: Any) -> Any:
    """Return an annotation as typer takes it; a text alone is the help of the option `name`."""
    text = getattr(kind, "__metadata__", (None,))[0]
    if not isinstance(text, str):
        return kind
    return Annotated[get_args(kind)[0], typer.Option(flag_of(name), help=text)]


def _is_expert(parameter: inspect.Parameter) -> bool:
    """Whether only `--help-all` shows the option of a parameter."""
    for part in get_args(parameter.annotation):
        # Inside Annotated, typer keeps the first flag of an option as its default value.
        flags = (getattr(part, "default", None), *(getattr(part, "param_decls", None) or ()))
        if any(one in EXPERT for one in flags if isinstance(one, str)):
            return True
    return False


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
