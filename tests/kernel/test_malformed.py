"""Files that are broken, huge or malicious are refused, quickly and in little memory."""

from __future__ import annotations

import json
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.kernel import RejectedError, UnreadableError, check, counterexample
from bnncert.kernel.container import MAGIC, MOST_BYTES, MOST_NUMBERS, Section
from tests.kernel.claims import REFUSALS, accepted, pack
from tests.kernel.conftest import Valid

#: Bytes and seconds that refusing a small file may take.
MEMORY, SECONDS = 400 * 2**20, 10.0


def packed(raw: bytes, length: int | None = None, stored: int | None = None) -> bytes:
    """Return one section as the file has it, with lengths that may be wrong."""
    data = zlib.compress(raw, 9)
    announced = len(raw) if length is None else length
    size = len(data) if stored is None else stored
    return announced.to_bytes(4, "little") + size.to_bytes(4, "little") + data


def refused(path: Path, data: bytes, one: Valid, why: str | None) -> None:
    path.write_bytes(data)
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(REFUSALS, match=why):
        check(path, one.network)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize(("name", "step"), [("point", 1), ("one", 11)])
def test_every_prefix_is_refused(
    valid: dict[str, Valid], name: str, step: int, tmp_path: Path
) -> None:
    one, path = valid[name], tmp_path / "short.cert"
    whole = pack(path, one.sections).read_bytes()
    for length in range(0, len(whole), step):
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableError):
            check(path, one.network)
    path.write_bytes(whole)
    assert accepted(path, one.network)


def test_every_byte_counts(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, path = valid["point"], tmp_path / "flipped.cert"
    whole = pack(path, one.sections).read_bytes()
    # The last section only carries the checksum, in a few bytes more than it takes.
    last = len(whole) - 100
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert accepted(path, one.network) is None or place > last
    path.write_bytes(whole + b"\n")
    with pytest.raises(UnreadableError, match="after the end"):
        check(path, one.network)


def line(fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


DEEP = b'{"section": "statement", "arrays": {}, "a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a certificate"),
        (b"PK\x03\x04 and so on", "not a certificate"),
        (b"bnncert certificate 1\n", "another version"),
        (MAGIC, "truncated"),
        (MAGIC + b"1234567", "truncated"),
        (MAGIC + packed(b"{}\n", stored=1000), "truncated"),
        (MAGIC + packed(b"{}\n", length=MOST_BYTES + 1), "at most"),
        (MAGIC + packed(b"{}\n", stored=2**32 - 1), "at most"),
        (MAGIC + packed(b"{}\n", length=2**26), "another length"),
        (MAGIC + packed(b"\0" * 2**26, length=3), "another length"),
        (MAGIC + packed(b"\0" * 2**26), "no line of JSON"),
        (MAGIC + packed(b" " * 2**21 + b"\n"), "no line of JSON"),
        (MAGIC + b"\x03\0\0\0\x04\0\0\0abcd", "cannot be unpacked"),
        (MAGIC + packed(b"{}\n", stored=20) + b"x" * 9, "another length"),
        (MAGIC + packed(b"{}"), "no line of JSON"),
        (MAGIC + packed(b"{\n"), "broken line"),
        (MAGIC + packed(b"\xff\xfe\xfd\xfc{}\n"), "broken line"),
        (MAGIC + packed(b'{"section": "\xc3\x28", "arrays": {}}\n'), "broken line"),
        (MAGIC + packed(DEEP), "broken line"),
        (MAGIC + packed(b'{"section": "a", "section": "b", "arrays": {}}\n'), "broken line"),
        (MAGIC + packed(b'{"section": "a", "n": ' + b"9" * 5000 + b"}\n"), "broken line"),
        (MAGIC + packed(b"[]\n"), "no fields"),
        (MAGIC + packed(line({"arrays": {}})), "no name"),
        (MAGIC + packed(line({"section": "statement"})), "no name"),
        (MAGIC + packed(line({"section": "statement", "arrays": []})), "no name"),
        (MAGIC + packed(line({"section": "statement", "arrays": {}}) + b"x"), "no array"),
        (MAGIC + packed(line({"section": "end", "arrays": {}, "sha256": "0"})), "checksum"),
    ],
)  # fmt: skip
def test_broken_files(valid: dict[str, Valid], data: bytes, why: str, tmp_path: Path) -> None:
    refused(tmp_path / "broken.cert", data, valid["point"], why)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (None, "type"),
        (7, "type"),
        ("<f8", "type"),
        (["<f8"], "type"),
        (["<f4", [2]], "type"),
        (["|O", [1]], "type"),
        ([["<f8"], [2]], "type"),
        (["<f8", 2], "type"),
        (["<f8", "2"], "type"),
        (["<f8", [1, 2]], "type"),
        (["<f8", [-1]], "type"),
        (["<f8", [True]], "type"),
        (["<f8", [1.5]], "type"),
        (["<f8", [3]], "longer"),
        (["<f8", [10**30]], "numbers"),
        (["|i1", [MOST_NUMBERS + 1]], "numbers"),
        (["<f8", [1]], "no array"),
    ],
)
def test_broken_arrays(valid: dict[str, Valid], entry: Any, why: str, tmp_path: Path) -> None:
    raw = line({"section": "statement", "arrays": {"center": entry}}) + bytes(16)
    refused(tmp_path / "broken.cert", MAGIC + packed(raw), valid["point"], why)


def test_a_bomb(valid: dict[str, Valid], tmp_path: Path) -> None:
    """Sixty kilobytes that unpack to the longest section there may be, again and again."""
    bomb = packed(line({"section": "statement", "arrays": {}}).ljust(2**26, b"\0"))
    assert len(bomb) < 2**17
    refused(tmp_path / "bomb.cert", MAGIC + 100 * bomb, valid["point"], "no array")


@pytest.mark.parametrize("name", ["sizes_of_clauses", "neurons", "kind", "tables", "sizes"])
def test_long_lists(valid: dict[str, Valid], name: str, tmp_path: Path) -> None:
    """Lists of millions of numbers where a few belong."""
    one = valid["one"]
    sections = [Section(s.name, s.fields, dict(s.arrays)) for s in one.sections]
    nodes = next(s for s in sections if s.name == "nodes")
    for value in (-1, 0, 1):
        nodes.arrays[name] = np.full(2**22, value, dtype="|i1")
        data = pack(tmp_path / "long.cert", sections).read_bytes()
        refused(tmp_path / "long.cert", data, one, None)


def test_long_clauses(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, count = valid["one"], 2**17
    single = np.ones(count, dtype="|i1")
    arrays = {"neurons": 0 * single, "signs": single, "theta": single}
    for sizes in (single, np.array([count])):
        long = Section("clauses", {"layer": 0}, {"sizes_of_clauses": sizes, **arrays})
        data = pack(tmp_path / "long.cert", [one.sections[0], long]).read_bytes()
        refused(tmp_path / "long.cert", data, one, None)


def test_sizes_that_wrap_around(valid: dict[str, Valid], tmp_path: Path) -> None:
    """Two sizes whose sum is right modulo 2^64."""
    one = valid["one"]
    sizes = np.array([2**62, 2**62, 2**62, 2**62, 2], dtype="<i8")
    arrays = {k: np.ones(2, dtype="<i8") for k in ("neurons", "signs", "theta")}
    clauses = Section("clauses", {"layer": 0}, {"sizes_of_clauses": sizes, **arrays})
    with pytest.raises(UnreadableError, match="add up"):
        check(pack(tmp_path / "wrap.cert", [one.sections[0], clauses]), one.network)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["linf", "polytope"])
def test_no_number(valid: dict[str, Valid], kind: str, value: float, tmp_path: Path) -> None:
    one = valid[kind]
    for name in one.sections[0].arrays:
        first = Section("statement", one.sections[0].fields, dict(one.sections[0].arrays))
        first.arrays[name] = np.full(first.arrays[name].size, value)
        with pytest.raises(UnreadableError, match="NaN"):
            check(pack(tmp_path / "nan.cert", [first]), one.network)


@pytest.mark.parametrize(
    "radius", ["1e999999999", "1_0", " 1", "+1", "٣", "1/0", "9" * 5000, 1, 0.5, None]
)
def test_numbers_in_other_words(valid: dict[str, Valid], radius: Any, tmp_path: Path) -> None:
    one = valid["linf"]
    first = Section(
        "statement", {**one.sections[0].fields, "radius": radius}, one.sections[0].arrays
    )
    data = pack(tmp_path / "radius.cert", [first]).read_bytes()
    refused(tmp_path / "radius.cert", data, one, "p/q")


def test_a_point_with_endless_digits(valid: dict[str, Valid], tmp_path: Path) -> None:
    """Denominators without a common factor, whose product has too many digits."""
    one, path = valid["point"], tmp_path / "digits.cert"
    center = one.sections[0].arrays["center"]
    for length, fine in ((1000, True), (1900, False)):
        exact = [
            f"{int(4 * c) * 10**length + k}/{4 * 10**length}"
            for k, c in enumerate(center.tolist(), start=1)
        ]
        # 10^n and 10^n + 1 have no common factor.
        exact[1] = f"{int(center[1] * 4) * (10**length + 1) + 1}/{4 * (10**length + 1)}"
        fields = {**one.sections[1].fields, "exact": exact}
        point = Section("point", fields, one.sections[1].arrays)
        pack(path, [one.sections[0], point])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counterexample, "MOST_POINT_BITS", 10_000)
            if fine:
                accepted(path, one.network)
            else:
                with pytest.raises(RejectedError, match="digits"):
                    check(path, one.network)
