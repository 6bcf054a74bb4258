"""`bnncert check`: whether a certificate is accepted.

The check of a small certificate takes less time than importing SciPy or rich, so neither is used.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bnncert.checking import RejectedError, UnreadableError
from bnncert.checking import check as check_certificate
from bnncert.commands.bundled_names import model_file
from bnncert.commands.options import JsonOption
from bnncert.commands.output import json_path, refuse_unwritable, write_json
from bnncert.errors import FormatError, InputError
from bnncert.formats.reading import check_regular
from bnncert.network import load


def check(
    certificate: Annotated[Path, typer.Argument(help="Certificate that verify wrote.")],
    model: Annotated[
        Path,
        typer.Option(
            "--model", parser=model_file, metavar="<path>", help="The network file it is about."
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Option(
            "--other",
            parser=model_file,
            metavar="<path>",
            help="The second network file of a certificate about two.",
        ),
    ] = None,
    sign_zero: Annotated[
        Literal["plus", "minus", "either"] | None,
        typer.Option(
            "--sign-zero",
            help="Value of sign(0) that the certificate is to hold for (default: the model's).",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds after which it is rejected.")
    ] = None,
    json_: JsonOption = None,
) -> None:
    """Check a certificate in exact arithmetic: exit code 0 accepted, 1 rejected, 2 unreadable."""
    refuse_unwritable(json_path(json_), read=(certificate, model, other))
    if timeout is not None and not timeout > 0:
        raise InputError(f"--timeout is {timeout}; expected a number of seconds > 0")
    check_regular(certificate)
    to_stderr = json_ == "-"
    network = load(model)
    second = None if other is None else load(other)
    tree: dict[str, Any] = {"certificate": str(certificate), "model": str(model)}
    if other is not None:
        tree["other"] = str(other)
    try:
        report = check_certificate(
            certificate, network, other=second, sign_zero=sign_zero, timeout=timeout
        )
    except UnreadableError as error:
        raise FormatError(f"{certificate}: {error}") from error
    except OSError as error:
        raise FormatError(f"{certificate}: {error.strerror or error}") from error
    except RejectedError as error:
        typer.echo(f"rejected: {error}", err=to_stderr)
        write_json(json_, tree | {"accepted": False, "reason": str(error)})
        raise typer.Exit(1) from error
    typer.echo(f"accepted: {report.statement}", err=to_stderr)
    counts = f"{report.targets} targets, {report.clauses} clauses, {report.leaves} leaves"
    if not report.targets:
        # The claim has no parts.
        counts = "computed again by the checker"
    typer.echo(f"{counts}, {report.seconds:.2f} s", err=to_stderr)
    write_json(json_, tree | {"accepted": True} | asdict(report))
