"""Changes of a composite certificate: of the details and arrays of its claim, and of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
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


def with_other_details(
    sections: list[Section], others: dict[str, list[Any]]
) -> Iterator[list[Section]]:
    """Yield files with one other value of a detail, with one more detail, and without each one."""
    old = sections[0].fields["details"]
    changed = [{**old, name: v} for name, values in others.items() for v in values]
    changed = [new for new in changed if repr(new) != repr(old)]
    less = [{k: v for k, v in old.items() if k != name} for name in old]
    for details in (*changed, *less, {**old, "more": 1}):
        fields = {"kind": sections[0].fields["kind"], "details": deepcopy(details)}
        yield [Section("claim", fields, sections[0].arrays), *sections[1:]]


def with_other_arrays(sections: list[Section]) -> Iterator[list[Section]]:
    """Yield files without an array of the claim, and with a part of it."""
    claim = sections[0]
    for name, values in claim.arrays.items():
        less = {k: v for k, v in claim.arrays.items() if k != name}
        for arrays in (less, {**less, name: values[:-1]}):
            yield [Section("claim", claim.fields, arrays), *sections[1:]]


def parts_of(sections: list[Section]) -> list[list[Section]]:
    """Return the ordinary certificates in a composite one."""
    found: list[list[Section]] = []
    for section in sections[1:]:
        if section.name == "statement":
            found.append([])
        found[-1].append(section)
    return found


def with_other_parts(sections: list[Section]) -> Iterator[list[Section]]:
    """Yield files in which a part is missing, doubled, exchanged, replaced, or without proof."""
    parts = parts_of(sections)
    for k, part in enumerate(parts):
        before, after = parts[:k], parts[k + 1 :]
        changed = [[*before, *after], [*before, part, part, *after]]
        if len(part) > 1:
            changed.append([*before, part[:1], *after])
        if k and not _same(part[0], parts[k - 1][0]):
            changed.append([*parts[: k - 1], part, parts[k - 1], *after])
            changed.append([*before, parts[k - 1], *after])
        for chosen in changed:
            yield [sections[0], *(section for one in chosen for section in one)]


def _same(one: Section, two: Section) -> bool:
    same = one.fields == two.fields and one.arrays.keys() == two.arrays.keys()
    return same and all(np.array_equal(v, two.arrays[k]) for k, v in one.arrays.items())
