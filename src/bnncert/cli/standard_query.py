"""`bnncert verify QUERY --network NAME=FILE`, the command line of the standard VNN-LIB 2.0.

The first line on the standard output is sat, unsat, unknown or timed-out, and after sat follows the
assignment.  The standard has no exit codes for answers, so that any answer ends with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import typer

from bnncert.cli.exit_codes import ExitCode
from bnncert.cli.files import model_file, network_tree
from bnncert.cli.grouping import given_options
from bnncert.cli.options import SharedMethodOptions
from bnncert.cli.result_views import VerifyOutputs, VerifyView, explain_result, replayable
from bnncert.cli.time_limit import finite_limit
from bnncert.cli.undecided import Asked
from bnncert.engine.replay import OnnxRuntime
from bnncert.errors import InputError
from bnncert.model.loading import load
from bnncert.problem.problem import Arithmetic
from bnncert.problem.vnnlib import read_vnnlib
from bnncert.questions.several_networks import assigned_networks, refuse_wrong_names
from bnncert.questions.verify import verify
from bnncert.report.vnncomp_files import standard_result

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.engine.verdict import Result
    from bnncert.model.network import Network
    from bnncert.problem.vnnlib.query import Specification

#: The element types for which verdicts are sound, with the arithmetic that they have.
SOUND_TYPES: dict[str, Arithmetic] = {"float32": "float32", "real": "real"}


def ask_standard(
    ctx: typer.Context,
    path: Path,
    named: Sequence[str],
    settings: SharedMethodOptions,
    arithmetic: Arithmetic,
    view: tuple[Callable[..., Consoles], VerifyOutputs, bool],
) -> NoReturn:
    """Answer a query about the networks that it declares, and exit."""
    begin, outputs, explain = view
    files = _files(named)
    consoles = begin((path, *files.values()))
    query = read_vnnlib(path)
    refuse_wrong_names(query, list(files))
    given = arithmetic if "arithmetic" in given_options(ctx) else None
    arithmetic = _arithmetic(query, given)
    models = {name: load(file).with_sign_zero(settings.sign_zero) for name, file in files.items()}
    _refuse_types(query, models)
    networks = assigned_networks(query, models)
    if outputs.save_counterexample is not None and len(networks) > 1:
        raise InputError(f"{path}: --save-counterexample is for one network, it declares more")
    about = partial(_about, models, path, seed=settings.seed, arithmetic=arithmetic)
    limit = finite_limit(settings.timeout)
    asked = Asked(settings.method, settings.options(), limit, is_real=arithmetic == "real")
    shown = _StandardView(consoles, outputs, about, asked, explain, networks, query, None)
    with settings.connected(consoles.watching.say) as options:
        how: dict[str, Any] = {"arithmetic": arithmetic, "method": settings.method}
        question = partial(verify, models, query, options=options, **how)
        shown.ask(ctx, None, settings.timeout, question)


def _files(named: Sequence[str]) -> dict[str, Path]:
    """Read the values of --network."""
    found: dict[str, Path] = {}
    for text in named:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise InputError(
                f"--network is {text!r}; expected NAME=FILE, a network of the query and its model"
            )
        if name in found:
            raise InputError(f"--network names {name!r} twice")
        found[name] = model_file(file)
    return found


def _arithmetic(query: Specification, given: Arithmetic | None) -> Arithmetic:
    """Choose the arithmetic of the declared types; raise if verdicts are not sound for one.

    Who writes the type `real` agrees to an analysis in real numbers, as the standard has it.
    """
    kinds = [t.element_type for n in query.networks for t in (n.input, n.output)]
    for kind in kinds:
        if kind not in SOUND_TYPES:
            raise InputError(
                f"{query.path}: declares type {kind}; verdicts are sound for "
                f"{' and '.join(SOUND_TYPES)}, so write real if one in real numbers is enough"
            )
    stated: Arithmetic = "float32" if "float32" in kinds else "real"
    if given == "real" and stated == "float32":
        raise InputError(
            f"{query.path}: declares type float32; write real there instead of --arithmetic real"
        )
    return given or stated


def _refuse_types(query: Specification, models: Mapping[str, Network]) -> None:
    """Raise if the type of an ONNX model is another one than the query declares."""
    for declared in query.networks:
        network = models.get(declared.name)
        if network is None or declared.input.element_type == "real":
            continue
        runtime = OnnxRuntime.of(network)
        if runtime is not None and runtime.dtype != np.float32:
            raise InputError(
                f"{query.path}: declares {declared.input.name} as float32, but the input of "
                f"{network.source} is {np.dtype(runtime.dtype).name}"
            )


def _about(models: Mapping[str, Network], path: Path, **settings: Any) -> dict[str, Any]:
    """Return the query and its networks for JSON."""
    trees = {name: network_tree(network) for name, network in models.items()}
    first = next(iter(trees.values()))
    several = {"networks": trees} if len(trees) > 1 else {}
    return {**first, **several, "region": None, "specification": str(path), **settings}


@dataclass(frozen=True, eq=False)
class _StandardView(VerifyView):
    """Prints the answer and the assignment as VNN-LIB 2.0 does."""

    def print_answer(self, found: Result) -> None:
        """Print the answer that the executed models confirm, alone on the standard output."""
        assert self.query is not None
        stated = replayable(self.networks, self.query, found)
        self.consoles.answer.say(standard_result(stated, self.query), end="")
        around = replace(self.consoles, details=self.consoles.watching)
        explain_result(around, self.asked, stated, explain=self.explain)

    def code(self, found: Result) -> int:
        """Return 0 for any answer."""
        return ExitCode.HOLDS
