"""What a comparison has found so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bnncert.kernel.rules.product import Product
from bnncert.model.network import Network
from bnncert.questions.compare.comparison_answer import NetworkComparison
from bnncert.questions.compare.difference import Difference
from bnncert.questions.compare.equivalence_certificate import CertificateError, ClaimWriter
from bnncert.questions.compare.normal_forms import compare_layers
from bnncert.regions import Region


class Findings:
    """The answer as far as it is known.

    Attributes
    ----------
    first, second
        The networks.
    writer
        Writes the certificate, if one is requested.
    known
        The answer so far.
    """

    def __init__(
        self, first: Network, second: Network, scope: str, writer: ClaimWriter | None
    ) -> None:
        self.first, self.second, self.writer = first, second, writer
        self._started = time.monotonic()
        layers = compare_layers(first, second)
        self.known = NetworkComparison("unknown", "", scope, layers, (), 0.0)
        enclosures = [net.layers[0].enclosure for net in (first, second)]
        counts = [int(np.count_nonzero(low != high)) for low, high in enclosures]
        if any(counts):
            self.note(
                f"{counts[0]} first-layer thresholds of A and {counts[1]} of B are irrational and "
                "compared as the floats that enclose them"
            )

    def update(self, **fields: Any) -> None:
        """Replace fields of the answer."""
        self.known = replace(self.known, **fields)

    def note(self, text: str) -> None:
        """Add a remark."""
        if text not in self.known.notes:
            self.update(notes=(*self.known.notes, text))

    def different(self, found: Difference, product: Product, region: Region) -> None:
        """Record an input of the region at which the classes differ."""
        self.update(status="different", how="inputs", difference=found)
        self.certify(lambda writer: writer.write_difference(product, region, found))

    def certify(self, write: Callable[[ClaimWriter], str]) -> None:
        """Write the certificate if one is requested; the answer stands if that fails."""
        if self.writer is None:
            return
        try:
            self.update(certificate=write(self.writer))
        except CertificateError as error:
            self.note(str(error))

    def result(self) -> NetworkComparison:
        """Return the answer with the time that it took."""
        return replace(self.known, seconds=time.monotonic() - self._started)
