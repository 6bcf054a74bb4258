"""Certificates about the classes of two networks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnncert.errors import InputError
from bnncert.kernel.rules.product import Product
from bnncert.model.formats.atomic import file_identity, folder_for
from bnncert.model.network import Network
from bnncert.proofs.claims import claim_section, write_claim
from bnncert.proofs.request import CertificateRequest
from bnncert.proofs.writing import CertificateError, write_counterexample
from bnncert.questions.compare.difference import Difference, pair_problem
from bnncert.regions import Region


@dataclass(frozen=True, eq=False)
class ClaimWriter:
    """Writes the certificate of a comparison; its parts are kept in a temporary folder."""

    path: Path
    first: Network
    second: Network
    folder: Path

    @staticmethod
    @contextmanager
    def into(
        path: str | os.PathLike[str] | None, first: Network, second: Network
    ) -> Iterator[ClaimWriter | None]:
        """Return the writer, or None without a path."""
        if path is None:
            yield None
            return
        file = Path(path)
        for network in (first, second):
            source = network.source
            if os.path.isfile(source) and file_identity(source) == file_identity(file):
                raise InputError(f"{file}: cannot be written (a network was read from it)")
        with folder_for(file) as folder:
            yield ClaimWriter(file, first, second, folder)

    def part(self, name: str, network: Network) -> CertificateRequest:
        """Return what makes a verification write a part."""
        return CertificateRequest(self.folder / name, network)

    def write(
        self,
        how: str,
        *,
        region: Region | None = None,
        classes: tuple[int, int] | None = None,
        excluded: dict[str, Any] | None = None,
        all_scores: bool = True,
        parts: tuple[str, ...] = (),
    ) -> str:
        """Write the claim with its parts; return the name of the file."""
        about: dict[str, Any] = {
            "networks": [self.first.content_hash, self.second.content_hash],
            "verdict": "different" if how == "point" else "equal",
            "how": how,
            "classes": None if classes is None else list(classes),
            "excluded": excluded,
            "all_scores": all_scores,
        }
        claim = claim_section("equivalence", region, about)
        write_claim(self.path, claim, [self.folder / name for name in parts])
        return str(self.path)

    def write_difference(self, product: Product, region: Region, found: Difference) -> str:
        """Write the claim that the networks differ at an input of the region."""
        problem = pair_problem(product, region, found.classes)
        point = found.as_counterexample(problem.targets[0].name)
        write_counterexample(self.folder / "point", problem, product.network, point)
        return self.write("point", region=region, classes=found.classes, parts=("point",))


__all__ = ["CertificateError", "ClaimWriter"]
