"""Options that are given but not used are errors.

Which options a method reads is stated by its class (:attr:`Method.reads`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from bnncert.engine.methods import REGISTRY
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
    found = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        # Compared by name, because versions of typer have enumerations of their own.
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
            found[name] = parameter.opts[0]
    return found


def refuse_unread(ctx: typer.Context, method: str) -> None:
    """Raise if an option is given that the method does not read."""
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
