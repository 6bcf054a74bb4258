"""One random question beside brute force: what came out, and what is wrong with it.

The tests ask some dozens of these questions, and `benchmarks.soundness` ten thousand.  Wrong is
an answer that brute force contradicts, a certificate that is missing or refused, and a changed
certificate that is accepted although what it says is not true.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.kernel import check
from bnncert.kernel.container import Section
from tests.every_mode import SHORT_WORK
from tests.kernel.claims import REFUSALS, pack, unpack
from tests.kernel.mutations import mutant
from tests.kernel.stated_regions import are_few, grid_points
from tests.plain_network import Point, quarters
from tests.strategies import few

#: How often an answer is asked for with its certificate, which takes longer than the answer.
CERTIFICATE = 0.25

#: How often the method is "auto", which decides all of these questions; "propagation" is faster,
#: and leaves some of those about grid points open.
AUTO = 0.2

#: Seconds for the check of a changed certificate; one that takes longer is refused.
SECONDS = 0.5

#: Returns what is wrong with a claim that was accepted, or None if it is true.
Refute: TypeAlias = Callable[[Section], str | None]


@dataclass(eq=False)
class Guarded:
    """What came out of one question.

    Attributes
    ----------
    answers
        How many answers were compared with brute force.
    tally
        Counts of answers, and of changed certificates that were refused or accepted.
    wrong
        One line for everything that is wrong.
    """

    answers: int = 1
    tally: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, text: object) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(str(text))

    def check_certificate(
        self,
        path: Path | None,
        network: bnncert.Network,
        verdict: str,
        *,
        other: bnncert.Network | None = None,
    ) -> str | None:
        """Check a certificate, which has to be accepted; return its statement if there is one.

        An answer may be right without a certificate; `never_wrong` limits how often.
        """
        if path is None or not path.exists():
            self.tally["no certificate"] += path is not None
            return None
        try:
            report = check(path, network, other=other)
        except (*REFUSALS, OSError) as error:
            self.wrong.append(f"the certificate is refused: {error}")
            return None
        self.tally["certificates"] += 1
        self.expect(report.verdict == verdict, f"the certificate says {report.verdict}")
        return report.statement

    def change_certificate(
        self,
        rng: np.random.Generator,
        path: Path | None,
        network: bnncert.Network,
        count: int,
        refute: Refute,
        *,
        other: bnncert.Network | None = None,
    ) -> None:
        """Change a certificate in random ways: what is accepted has to be true."""
        if path is None or not path.exists() or not count or self.wrong:
            return
        valid, changed = unpack(path), path.with_suffix(".changed")
        for _ in range(count):
            sections = mutant(rng, valid, (valid,))
            pack(changed, sections)
            try:
                # A changed number may ask for the enumeration of a huge region.
                check(changed, network, other=other, timeout=SECONDS)
            except REFUSALS:
                self.tally["changed certificates: refused"] += 1
                continue
            if _same(sections[0], valid[0]):
                self.tally["changed certificates: accepted, same claim"] += 1
            elif sections[0].name == "claim":
                self.tally["changed certificates: accepted, other claim"] += 1
                reason = refute(sections[0])
                self.expect(
                    reason is None, f"accepted: {sections[0].fields} {sections[0].arrays}: {reason}"
                )


def how(rng: np.random.Generator) -> dict[str, Any]:
    """Return the method of an answer, little work for what has no end of its own, and no limit."""
    method = "auto" if rng.random() < AUTO else "propagation"
    return {"method": method, "options": SHORT_WORK, "timeout": 60}


def wanted(rng: np.random.Generator, folder: Path, name: str) -> Path | None:
    """Return the file for a certificate, or None if there is to be none."""
    path = folder / f"{name}.bnncert"
    path.unlink(missing_ok=True)
    return path if rng.random() < CERTIFICATE else None


def stated_points(region: Mapping[str, Any], arrays: Mapping[str, Any]) -> Iterator[Point]:
    """Yield the points, in quarters, of a region on a grid that a claim states, or some of many."""
    return map(quarters, grid_points(Section("statement", dict(region), dict(arrays))))


def are_all_stated(region: Mapping[str, Any], arrays: Mapping[str, Any]) -> bool:
    """Whether `stated_points` yields all points of a region."""
    return are_few(Section("statement", dict(region), dict(arrays)))


def _same(one: Section, two: Section) -> bool:
    return (
        one.name == two.name
        and one.fields == two.fields
        and one.arrays.keys() == two.arrays.keys()
        and all(np.array_equal(v, two.arrays[k]) for k, v in one.arrays.items())
    )


#: The largest share of answers whose certificate could not be written.
UNCERTIFIED = 0.02

#: Asks one random question; a certificate goes into the folder, and is changed so many times.
Guard: TypeAlias = Callable[[np.random.Generator, Path, int], Guarded]


def never_wrong(
    guard: Guard, examples: int = 200, mutants: int = 1, *, occurs: Sequence[str] = ()
) -> None:
    """Ask random questions; fail at the first that is answered wrongly.

    `occurs` are answers of which there have to be some.
    """
    tally: Counter[str] = Counter()
    start = zlib.crc32(f"{guard.__module__} {guard.__name__}".encode())

    with tempfile.TemporaryDirectory() as folder:

        @few(examples)
        @given(seed=st.integers(0, 2**32 - 1))
        def ask(seed: int) -> None:
            found = guard(np.random.default_rng([start, seed]), Path(folder), mutants)
            assert not found.wrong, "; ".join(found.wrong)
            tally.update(found.tally)

        ask()
    assert tally["no certificate"] <= 1 + UNCERTIFIED * tally["certificates"], dict(tally)
    missing = [word for word in occurs if not tally[word]]
    assert not missing, f"{missing} of {dict(tally)}"
