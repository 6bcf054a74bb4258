"""bnncert verifies binary neural networks.

>>> import bnncert
>>> from bnncert.model.loading import load_demo_images, load_demo_network
>>> net, images = load_demo_network(), load_demo_images()
>>> ball = bnncert.Ball("linf", images.point(0), 0.002, -1, 1)  # centre, radius, data box
>>> bnncert.verify(net, ball, label=7, timeout=60).status
'robust'

:func:`load` reads a network from a file of your own.
"""

from __future__ import annotations

from bnncert.version import __version__

#: As in `typing`, whose import would take longer than all the rest: Ctrl-C might meet it.
TYPE_CHECKING = False

#: The public names by module.  They are imported on use, because all of them take a second.
_MODULES = {
    "engine.answer": "Answer Interrupted",
    "engine.methods": "Options",
    "engine.relaxations.moments.polynomial": "Polynomial",
    "engine.verdict": "Counterexample",
    "errors": "BnncertError FormatError InputError OutsideDataBoxWarning UnsupportedModelError",
    "extras.training.train": "train",
    "kernel": "check",
    "model.formats.file_content": "Limits",
    "model.loading": "from_torch load",
    "model.network": "Network",
    "problem": "Objective Problem",
    "problem.vnnlib": "read_vnnlib",
    "problem.vnnlib.query": "Specification",
    "questions.compare.compare": "compare",
    "questions.count.count": "count",
    "questions.explain.explain": "explain",
    "questions.faults.fault_search": "faults",
    "questions.polynomial_bound": "bound_polynomial",
    "questions.prover": "progress_bar",
    "questions.radius.radius": "radius",
    "questions.relations.relations": "fair monotone",
    "questions.radius.smallest": "smallest",
    "questions.verify": "bound verify",
    "regions": "Ball Box Brightness BrightnessSteps Contrast Grid ImageShift L0Ball Patch Polytope "
    "Region",
    "report.overview": "read_results",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from bnncert.engine.answer import Answer as Answer
    from bnncert.engine.answer import Interrupted as Interrupted
    from bnncert.engine.methods import Options as Options
    from bnncert.engine.relaxations.moments.polynomial import Polynomial as Polynomial
    from bnncert.engine.verdict import Counterexample as Counterexample
    from bnncert.errors import BnncertError as BnncertError
    from bnncert.errors import FormatError as FormatError
    from bnncert.errors import InputError as InputError
    from bnncert.errors import OutsideDataBoxWarning as OutsideDataBoxWarning
    from bnncert.errors import UnsupportedModelError as UnsupportedModelError
    from bnncert.extras.training.train import train as train
    from bnncert.kernel import check as check
    from bnncert.model.formats.file_content import Limits as Limits
    from bnncert.model.loading import from_torch as from_torch
    from bnncert.model.loading import load as load
    from bnncert.model.network import Network as Network
    from bnncert.problem import Objective as Objective
    from bnncert.problem import Problem as Problem
    from bnncert.problem.vnnlib import read_vnnlib as read_vnnlib
    from bnncert.problem.vnnlib.query import Specification as Specification
    from bnncert.questions.compare.compare import compare as compare
    from bnncert.questions.count.count import count as count
    from bnncert.questions.explain.explain import explain as explain
    from bnncert.questions.faults.fault_search import faults as faults
    from bnncert.questions.polynomial_bound import bound_polynomial as bound_polynomial
    from bnncert.questions.prover import progress_bar as progress_bar
    from bnncert.questions.radius.radius import radius as radius
    from bnncert.questions.radius.smallest import smallest as smallest
    from bnncert.questions.relations.relations import fair as fair
    from bnncert.questions.relations.relations import monotone as monotone
    from bnncert.questions.verify import bound as bound
    from bnncert.questions.verify import verify as verify
    from bnncert.regions import Ball as Ball
    from bnncert.regions import Box as Box
    from bnncert.regions import Brightness as Brightness
    from bnncert.regions import BrightnessSteps as BrightnessSteps
    from bnncert.regions import Contrast as Contrast
    from bnncert.regions import Grid as Grid
    from bnncert.regions import ImageShift as ImageShift
    from bnncert.regions import L0Ball as L0Ball
    from bnncert.regions import Patch as Patch
    from bnncert.regions import Polytope as Polytope
    from bnncert.regions import Region as Region
    from bnncert.report.overview import read_results as read_results
else:

    def __getattr__(name: str) -> object:
        """Import a name of the API or a module when it is used for the first time."""
        import importlib

        if name in _HOMES:
            value = getattr(importlib.import_module(f"bnncert.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if not name.startswith("_"):
            module = f"bnncert.{name}"
            try:
                return importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted(__all__)
