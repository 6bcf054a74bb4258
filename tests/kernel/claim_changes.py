"""Changes of a composite certificate: of the details and arrays of its claim, and of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np

from bnncert.kernel.container import Section

#: Other values by name.
Values: TypeAlias = dict[str, list[Any]]


def with_other_details(
    sections: list[Section], others: Values, region: Values | None = None
) -> Iterator[list[Section]]:
    """Yield files with one other value of a detail, with one more detail, and without each one.

    `region` has other values of the fields of the region.
    """
    old = sections[0].fields["details"]
    changed = [{**old, name: v} for name, values in others.items() for v in values]
    for name, values in (region or {}).items():
        changed += [{**old, "region": {**old["region"], name: v}} for v in values]
    changed = [new for new in changed if repr(new) != repr(old)]
    less = [{k: v for k, v in old.items() if k != name} for name in old]
    for details in (*changed, *less, {**old, "more": 1}):
        fields = {"kind": sections[0].fields["kind"], "details": deepcopy(details)}
        yield [Section("claim", fields, sections[0].arrays), *sections[1:]]


def with_other_arrays(
    sections: list[Section], others: Values | None = None
) -> Iterator[list[Section]]:
    """Yield files with other values of an array of the claim, with a part of it, and without it."""
    claim = sections[0]
    changed = [
        {**claim.arrays, k: np.array(v, float)} for k, n in (others or {}).items() for v in n
    ]
    for name, values in claim.arrays.items():
        less = {k: v for k, v in claim.arrays.items() if k != name}
        changed += [less, {**less, name: values[:-1]}]
    for arrays in changed:
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
