"""Commands that take a group of options as one dataclass.

typer makes one option of each parameter of a function, so a command with many options would be a
function with many parameters.  :func:`grouped` shows typer the fields of such a dataclass instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from bnncert.cli.catalogue import EXPERT, show_all

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
