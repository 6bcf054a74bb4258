"""bnncert verifies binary neural networks.

>>> import bnncert
>>> from bnncert.model.bundled import load_demo_images, load_demo_network
>>> net, images = load_demo_network(), load_demo_images()
>>> ball = bnncert.Ball("linf", images.point(0), 0.002, -1, 1)  # centre, radius, data box
>>> bnncert.verify(net, ball, label=7, timeout=60).status
'robust'

:func:`load` reads a network from a file of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bnncert.version import __version__

if TYPE_CHECKING:
    from bnncert.engine.methods import REGISTRY, Method, Options
    from bnncert.engine.relaxations.moments.polynomial import Polynomial
    from bnncert.engine.verdict import Counterexample, Result, TargetResult
    from bnncert.errors import (
        BnncertError,
        FormatError,
        InputError,
        OutsideDataBoxWarning,
        UnsupportedModelError,
    )
    from bnncert.extras.training.train import TrainedNetwork, train
    from bnncert.model.formats.file_content import Limits
    from bnncert.model.layers import OutputLayer, ThresholdLayer
    from bnncert.model.loading import from_torch, load
    from bnncert.model.network import Network
    from bnncert.problem import (
        Objective,
        Problem,
        Target,
        from_vnnlib,
        output_polytope,
        robustness,
        score_objective,
    )
    from bnncert.problem.vnnlib import read_vnnlib
    from bnncert.problem.vnnlib.query import Specification
    from bnncert.questions.compare.compare import compare_networks
    from bnncert.questions.compare.comparison_answer import NetworkComparison
    from bnncert.questions.count.count import count
    from bnncert.questions.count.count_answer import CountResult
    from bnncert.questions.explain.explain import explain
    from bnncert.questions.explain.explanation_answer import Explanation
    from bnncert.questions.faults.fault_search import tolerated_faults
    from bnncert.questions.faults.faults_answer import FaultsResult
    from bnncert.questions.polynomial_bound import (
        PolynomialBound,
        bound_polynomial,
        last_sign,
        network_input,
        score,
    )
    from bnncert.questions.progress_bar import progress_bar
    from bnncert.questions.radius import find_radius
    from bnncert.questions.radius_answer import RadiusResult
    from bnncert.questions.relations.input_pair import InputPair
    from bnncert.questions.relations.relation_answer import RelationResult
    from bnncert.questions.relations.relations import check_fair, check_monotone
    from bnncert.questions.smallest.smallest import SmallestResult, find_smallest
    from bnncert.questions.solving import solve
    from bnncert.questions.verify import bound, verify, verify_specification
    from bnncert.regions import (
        Ball,
        Box,
        Brightness,
        BrightnessSteps,
        Contrast,
        Grid,
        ImageShift,
        L0Ball,
        Patch,
        Polytope,
        Region,
    )
    from bnncert.report.overview import ResultsOverview, read_results


__all__ = [
    "Ball",
    "BnncertError",
    "Box",
    "Brightness",
    "BrightnessSteps",
    "Contrast",
    "CountResult",
    "Counterexample",
    "Explanation",
    "FaultsResult",
    "FormatError",
    "Grid",
    "ImageShift",
    "InputError",
    "InputPair",
    "L0Ball",
    "Limits",
    "Method",
    "Network",
    "NetworkComparison",
    "Objective",
    "Options",
    "OutputLayer",
    "OutsideDataBoxWarning",
    "Patch",
    "Polynomial",
    "PolynomialBound",
    "Polytope",
    "Problem",
    "REGISTRY",
    "RadiusResult",
    "Region",
    "RelationResult",
    "Result",
    "ResultsOverview",
    "SmallestResult",
    "Specification",
    "Target",
    "TargetResult",
    "ThresholdLayer",
    "TrainedNetwork",
    "UnsupportedModelError",
    "__version__",
    "bound",
    "bound_polynomial",
    "check_fair",
    "check_monotone",
    "compare_networks",
    "count",
    "explain",
    "find_radius",
    "find_smallest",
    "from_torch",
    "from_vnnlib",
    "last_sign",
    "load",
    "network_input",
    "output_polytope",
    "progress_bar",
    "read_results",
    "read_vnnlib",
    "robustness",
    "score",
    "score_objective",
    "solve",
    "tolerated_faults",
    "train",
    "verify",
    "verify_specification",
]

#: The modules that define the names above.  They are imported on use, because importing all of
#: them takes a second.
_HOMES = {
    "bnncert.engine.methods": (
        "REGISTRY",
        "Method",
        "Options",
    ),
    "bnncert.engine.relaxations.moments.polynomial": ("Polynomial",),
    "bnncert.engine.verdict": (
        "Counterexample",
        "Result",
        "TargetResult",
    ),
    "bnncert.errors": (
        "BnncertError",
        "FormatError",
        "InputError",
        "OutsideDataBoxWarning",
        "UnsupportedModelError",
    ),
    "bnncert.extras.training.train": (
        "TrainedNetwork",
        "train",
    ),
    "bnncert.model.formats.file_content": ("Limits",),
    "bnncert.model.layers": (
        "OutputLayer",
        "ThresholdLayer",
    ),
    "bnncert.model.loading": (
        "from_torch",
        "load",
    ),
    "bnncert.model.network": ("Network",),
    "bnncert.problem": (
        "Objective",
        "Problem",
        "Target",
        "from_vnnlib",
        "output_polytope",
        "robustness",
        "score_objective",
    ),
    "bnncert.problem.vnnlib.query": ("Specification",),
    "bnncert.problem.vnnlib": ("read_vnnlib",),
    "bnncert.questions.compare.compare": ("compare_networks",),
    "bnncert.questions.compare.comparison_answer": ("NetworkComparison",),
    "bnncert.questions.count.count": ("count",),
    "bnncert.questions.count.count_answer": ("CountResult",),
    "bnncert.questions.explain.explain": ("explain",),
    "bnncert.questions.explain.explanation_answer": ("Explanation",),
    "bnncert.questions.faults.fault_search": ("tolerated_faults",),
    "bnncert.questions.faults.faults_answer": ("FaultsResult",),
    "bnncert.questions.polynomial_bound": (
        "PolynomialBound",
        "bound_polynomial",
        "last_sign",
        "network_input",
        "score",
    ),
    "bnncert.questions.progress_bar": ("progress_bar",),
    "bnncert.questions.radius": ("find_radius",),
    "bnncert.questions.radius_answer": ("RadiusResult",),
    "bnncert.questions.relations.input_pair": ("InputPair",),
    "bnncert.questions.relations.relation_answer": ("RelationResult",),
    "bnncert.questions.relations.relations": (
        "check_fair",
        "check_monotone",
    ),
    "bnncert.questions.smallest.smallest": (
        "SmallestResult",
        "find_smallest",
    ),
    "bnncert.questions.solving": ("solve",),
    "bnncert.questions.verify": (
        "bound",
        "verify",
        "verify_specification",
    ),
    "bnncert.regions": (
        "Ball",
        "Box",
        "Brightness",
        "BrightnessSteps",
        "Contrast",
        "Grid",
        "ImageShift",
        "L0Ball",
        "Patch",
        "Polytope",
        "Region",
    ),
    "bnncert.report.overview": (
        "ResultsOverview",
        "read_results",
    ),
}

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name of the API or a module when it is used for the first time."""
        if name in _HOME_OF:
            value = getattr(importlib.import_module(_HOME_OF[name]), name)
            globals()[name] = value
            return value
        if not name.startswith("_"):
            module = f"{__name__}.{name}"
            try:
                return importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
