"""Changes of the first section of a composite certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bnncert.kernel.container import Section


def detail(name: str, value: Any) -> Callable[[Section], None]:
    """Return the change of one of the details of a claim."""

    def change(section: Section) -> None:
        section.fields["details"][name] = value

    return change


def region(name: str, value: Any) -> Callable[[Section], None]:
    """Return the change of a field of the region of a claim."""

    def change(section: Section) -> None:
        section.fields["details"]["region"][name] = value

    return change


def array(name: str, value: Any) -> Callable[[Section], None]:
    """Return the change of an array of a claim; None deletes it."""

    def change(section: Section) -> None:
        if value is None:
            del section.arrays[name]
        else:
            section.arrays[name] = np.asarray(value, dtype=np.float64)

    return change
