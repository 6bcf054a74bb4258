"""bnncert verifies binary neural networks.

>>> import bnncert
>>> from bnncert.bundled import load_demo_images, load_demo_network
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
    from bnncert.copies import InputPair, RelationResult, check_fair, check_monotone
    from bnncert.counting import CountResult, count
    from bnncert.equivalence import NetworkComparison, compare_networks
    from bnncert.errors import (
        BnncertError,
        FormatError,
        InputError,
        OutsideDataBoxWarning,
        UnsupportedModelError,
    )
    from bnncert.explanation import Explanation, explain
    from bnncert.faults import FaultsResult, tolerated_faults
    from bnncert.formats.limits import Limits
    from bnncert.formats.vnnlib.query import Specification
    from bnncert.formats.vnnlib.reader import read_vnnlib
    from bnncert.methods import REGISTRY, Method, Options
    from bnncert.network import Network, OutputLayer, ThresholdLayer, from_torch, load
    from bnncert.problem import (
        Objective,
        Problem,
        Target,
        from_vnnlib,
        output_polytope,
        robustness,
        score_objective,
    )
    from bnncert.progress_bar import progress_bar
    from bnncert.quadratic import PolynomialBound, bound_polynomial, last_sign, network_input, score
    from bnncert.radius import find_radius
    from bnncert.radius_result import RadiusResult
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
    from bnncert.relaxations.moments.polynomial import Polynomial
    from bnncert.report.overview import ResultsOverview, read_results
    from bnncert.smallest import SmallestResult, find_smallest
    from bnncert.solving import solve
    from bnncert.verdict import Counterexample, Result, TargetResult
    from bnncert.verification import bound, verify, verify_specification


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
    "verify",
    "verify_specification",
]

#: The modules that define the names above.  They are imported on use, because importing all of
#: them takes a second.
_HOMES = {
    "bnncert.copies": ("InputPair", "RelationResult", "check_fair", "check_monotone"),
    "bnncert.counting": ("CountResult", "count"),
    "bnncert.errors": (
        "BnncertError",
        "FormatError",
        "InputError",
        "OutsideDataBoxWarning",
        "UnsupportedModelError",
    ),
    "bnncert.explanation": ("Explanation", "explain"),
    "bnncert.faults": ("FaultsResult", "tolerated_faults"),
    "bnncert.equivalence": ("NetworkComparison", "compare_networks"),
    "bnncert.formats.limits": ("Limits",),
    "bnncert.formats.vnnlib.reader": ("read_vnnlib",),
    "bnncert.formats.vnnlib.query": ("Specification",),
    "bnncert.methods": ("REGISTRY", "Method", "Options"),
    "bnncert.network": ("Network", "OutputLayer", "ThresholdLayer", "from_torch", "load"),
    "bnncert.relaxations.moments.polynomial": ("Polynomial",),
    "bnncert.problem": (
        "Objective",
        "Problem",
        "Target",
        "from_vnnlib",
        "output_polytope",
        "robustness",
        "score_objective",
    ),
    "bnncert.progress_bar": ("progress_bar",),
    "bnncert.quadratic": (
        "PolynomialBound",
        "bound_polynomial",
        "last_sign",
        "network_input",
        "score",
    ),
    "bnncert.radius": ("find_radius",),
    "bnncert.radius_result": ("RadiusResult",),
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
    "bnncert.report.overview": ("ResultsOverview", "read_results"),
    "bnncert.smallest": ("SmallestResult", "find_smallest"),
    "bnncert.verdict": ("Counterexample", "Result", "TargetResult"),
    "bnncert.solving": ("solve",),
    "bnncert.verification": ("bound", "verify", "verify_specification"),
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
