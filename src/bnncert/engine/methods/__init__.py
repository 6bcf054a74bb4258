"""The methods, one file each.  Importing this package registers them all."""

from __future__ import annotations

from bnncert.engine.methods import (  # noqa: F401
    attack,
    auto,
    branch,
    elimination,
    interval,
    lp,
    milp,
    minp,
    propagation,
    reduced_sdp,
    sample,
    sdp_moments,
)
from bnncert.engine.methods.base import REGISTRY, Context, Method, Options, Progress

__all__ = ["Context", "Method", "Options", "Progress", "REGISTRY"]
