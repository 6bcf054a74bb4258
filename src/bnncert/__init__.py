"""bnncert verifies binary neural networks.

Load a network, choose a region, ask:

>>> import bnncert
>>> net = bnncert.load("net.onnx")                                        # doctest: +SKIP
>>> ball = bnncert.Ball("linf", image, 0.002, -1, 1)                      # doctest: +SKIP
>>> bnncert.verify(net, ball, label=7).status                             # doctest: +SKIP
'robust'
"""

from __future__ import annotations

from bnncert.errors import BnncertError, FormatError, InputError, UnsupportedModelError
from bnncert.formats.limits import Limits
from bnncert.formats.vnnlib import read_vnnlib
from bnncert.formats.vnnlib_query import Specification
from bnncert.methods import REGISTRY, Method, Options
from bnncert.network import Network, OutputLayer, ThresholdLayer, from_torch, load
from bnncert.polynomial import Polynomial
from bnncert.problem import (
    Objective,
    Problem,
    Target,
    from_vnnlib,
    output_polytope,
    robustness,
    score_objective,
)
from bnncert.quadratic import (
    PolynomialBound,
    bound_polynomial,
    last_sign,
    network_input,
    score,
)
from bnncert.radius import RadiusResult, find_radius
from bnncert.regions import Ball, Box, Polytope, Region
from bnncert.verdict import Counterexample, Result, TargetResult
from bnncert.verification import bound, solve, verify, verify_specification

__version__ = "0.1.0"

__all__ = [
    "Ball",
    "BnncertError",
    "Box",
    "Counterexample",
    "FormatError",
    "InputError",
    "Limits",
    "Method",
    "Network",
    "Objective",
    "Options",
    "OutputLayer",
    "Polynomial",
    "PolynomialBound",
    "Polytope",
    "Problem",
    "REGISTRY",
    "RadiusResult",
    "Region",
    "Result",
    "Specification",
    "Target",
    "TargetResult",
    "ThresholdLayer",
    "UnsupportedModelError",
    "__version__",
    "bound",
    "bound_polynomial",
    "find_radius",
    "from_torch",
    "from_vnnlib",
    "last_sign",
    "load",
    "network_input",
    "output_polytope",
    "read_vnnlib",
    "robustness",
    "score",
    "score_objective",
    "solve",
    "verify",
    "verify_specification",
]
