"""The methods, one file each; `REGISTRY` imports a method when it is asked for."""

from __future__ import annotations

from bnncert.engine.methods.base import REGISTRY, Context, Method, Options, Progress

__all__ = ["Context", "Method", "Options", "Progress", "REGISTRY"]
