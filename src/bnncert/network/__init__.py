"""Binary networks in normal form."""

from __future__ import annotations

from bnncert.network.layers import OutputLayer, ThresholdLayer
from bnncert.network.network import Network
from bnncert.network.reading import from_torch, load

__all__ = ["Network", "OutputLayer", "ThresholdLayer", "from_torch", "load"]
