"""Composite certificates: a claim, and the ordinary certificates from which it follows."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bnncert.kernel.container import Section, Writer, read_sections
from bnncert.model.formats.atomic import replacing


def write_claim(
    path: str | os.PathLike[str], claim: Section, parts: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Write a claim and its parts, which are files of ordinary certificates, atomically.

    Parameters
    ----------
    path
        The file of the composite certificate.
    claim
        The section `claim`, with its kind and its details.
    parts
        The files in the order in which the check of the claim takes them.
    """
    with replacing(path) as file:
        writer = Writer(file)
        writer.add(claim)
        for part in parts:
            for section in read_sections(part):
                writer.add(section)
        writer.end()
