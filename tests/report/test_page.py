"""The report page and its exports: numbers counted anew, nothing from the file becomes markup."""

from __future__ import annotations

import base64
import csv
import json
import re
import sqlite3
import struct
import time
import zlib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError, InputError
from bnncert.regions.pictures import as_image, difference, png_bytes, shades
from bnncert.report.csv_export import write_csv
from bnncert.report.latex_export import escape, write_latex
from bnncert.report.page.document import write_page
from bnncert.report.page.markup import AxisScale
from bnncert.report.page.row_data import Album, collect_details, shortened, table_columns
from bnncert.report.statistics import gaps, panels
from bnncert.results.store import read_recorded
from tests.cli.diamond import Run
from tests.in_process import command_line
from tests.report.results_sketch import (
    NETWORK,
    campaign_file,
    digit,
    large_file,
    stored_input,
    write_results,
)

VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """All elements with their attributes, the text, and the content of the data scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._data: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script = (dict(attrs).get("id") or "code") if tag == "script" else None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    def having(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of this class."""
        return [a for _, a in self.elements if name in (a.get("class") or "").split()]

    def unpacked(self, name: str) -> Any:
        return json.loads(zlib.decompress(base64.b64decode(self.scripts[name])))


def page_of(results: Path, **options: int) -> Page:
    out = results.with_suffix(".html")
    write_page(read_recorded(results), out, **options)
    return Page(out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return command_line(monkeypatch, capfd, "report")


# --- the charts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    results = campaign_file(tmp_path_factory.mktemp("report") / "campaign.sqlite", images=20)
    return results, page_of(results)


def test_bars_add_up_to_the_rows(campaign: tuple[Path, Page]) -> None:
    path, page = campaign
    drawn: Counter[str] = Counter()
    for field in ("robust", "not_robust", "undecided", "misclassified"):
        for segment in page.having("seg"):
            if field in str(segment["class"]).split() and "data-count" in segment:
                drawn[field] += int(str(segment["data-count"]))
    with sqlite3.connect(path) as connection:
        counted = dict(
            connection.execute(
                "SELECT CASE WHEN status IN ('unknown', 'timeout') THEN 'undecided' "
                "ELSE status END, COUNT(*) FROM results WHERE question = 'verify' GROUP BY 1"
            )
        )
        bars = connection.execute(
            "SELECT COUNT(*) FROM (SELECT DISTINCT model_hash, norm, radius, method FROM results "
            "WHERE question = 'verify')"
        ).fetchone()[0]
    assert dict(drawn) == counted
    assert len(page.having("bar")) == bars == 2 * 2 * 4 * 4


def test_every_chart_is_there(campaign: tuple[Path, Page]) -> None:
    _, page = campaign
    kinds = {name: len(page.having(name)) for name in ("outcomes", "accuracy", "cactus", "gap")}
    assert kinds == {"outcomes": 4, "accuracy": 4, "cactus": 4, "gap": 16}


def test_accuracies_are_shares_of_all_inputs(tmp_path: Path) -> None:
    words = ["robust", "robust", "not_robust", "misclassified", "timeout"]
    rows = [{"input_index": k, "input_hash": f"i{k}", "status": w} for k, w in enumerate(words)]
    page = page_of(write_results(tmp_path / "r.sqlite", rows, networks=[NETWORK]))
    # A misclassified input is a counterexample itself.
    assert "40.0 % 2 of 540.0 % 2 of 5, 1 misclassified20.0 % 1 of 5" in page.text
    # Two robust and one counterexample are decided; the misclassified one is no question.
    assert "sdp: 3 of 4" in page.text


def test_a_campaign_that_is_not_finished_says_so(tmp_path: Path) -> None:
    words = "Not every method and radius was asked about the same inputs"
    rows: list[dict[str, Any]] = [{}, {"radius": 0.125, "status": "unknown"}]
    assert words not in page_of(write_results(tmp_path / "a.sqlite", rows)).text
    rows.append({"input_index": 1, "input_hash": "i1"})
    assert words in page_of(write_results(tmp_path / "b.sqlite", rows)).text


def test_rows_of_different_questions_are_never_counted_together(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"rivals": "all", "status": "unknown"},
        {"rivals": "runner-up"},
        {"rivals": "all", "ties": "allowed"},
        {"rivals": "all", "clip": "none"},
        {"timeout": 5.0, "status": "timeout"},
    ]
    known = panels(read_recorded(write_results(tmp_path / "r.sqlite", rows)))
    assert [(p.key.rivals, p.key.ties, p.key.clip) for p in known] == [
        ("all", "violation", "-1.0,1.0"),
        ("runner-up", "violation", "-1.0,1.0"),
        ("all", "allowed", "-1.0,1.0"),
        ("all", "violation", "none"),
    ]
    assert known[0].series == ("sdp (60 s)", "sdp (5 s)")


def test_relative_improvement_is_the_share_of_the_gap_that_is_closed(tmp_path: Path) -> None:
    bounds = {  # image: sample's upper bound, sdp, lp
        0: (10.0, 5.0, 0.0),  # half
        1: (-2.0, -4.0, -10.0),  # three quarters
        2: (1.0, 1.0, 1.0),  # nothing to gain
        3: (None, 5.0, 0.0),  # no upper bound
    }
    rows = [
        {
            **{"input_index": k, "input_hash": f"i{k}", "method": method, "question": "bound"},
            **{"lower": lower, "upper": upper, "status": "unknown"},
        }
        for k, (high, sdp, lp) in bounds.items()
        for method, lower, upper in (("sample", None, high), ("sdp", sdp, None), ("lp", lp, None))
    ]
    # The bounds of verify are weaker and must not be mixed in.
    rows.append({**rows[1], "question": "verify", "lower": -99.0})
    results = write_results(tmp_path / "r.sqlite", rows)
    (panel,) = panels(read_recorded(results))
    (gap,) = gaps(panel)
    assert gap.images == (0, 3, 2, 1)
    assert gap.upper == (10.0, None, 1.0, -2.0)
    assert gap.lower == {"sdp": (5.0, 5.0, 1.0, -4.0), "lp": (0.0, 0.0, 1.0, -10.0)}
    (gain,) = gap.improvements
    assert (gain.reference, gain.other, gain.instances) == ("sdp", "lp", 2)
    assert gain.share == (0.5 + 0.75) / 2
    assert "sdp closes 62.5 % of the gap of lp (mean of 2)" in page_of(results).text


def test_bounds_of_verify_join_only_where_they_are_complete(tmp_path: Path) -> None:
    answers = (
        ("sample", "bound", None, 10.0),
        ("sdp", "bound", 5.0, None),
        ("sdp-tight", "verify", 4.0, None),
        ("auto", "verify", 0.5, None),
        ("sdp", "verify", 0.1, None),
    )
    rows = [
        {"method": m, "question": q, "lower": a, "upper": b, "status": "unknown"}
        for m, q, a, b in answers
    ]
    (panel,) = panels(read_recorded(write_results(tmp_path / "r.sqlite", rows)))
    (gap,) = gaps(panel)
    assert gap.lower == {"sdp": (5.0,), "sdp-tight": (4.0,)}
    assert [(one.other, one.share) for one in gap.improvements] == [("sdp-tight", 1 / 6)]


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_inside_the_scale(log: bool) -> None:
    scale = AxisScale(0.004, 73.0, 10, 400, log)
    ticks = scale.ticks()
    assert 3 <= len(ticks) <= 8
    assert all(10 <= scale(t) <= 400 for t in ticks)
    assert scale(0.004) == 10 and scale(73.0) == pytest.approx(400)
    if log:
        assert ticks == pytest.approx([0.01, 0.1, 1, 10])
    else:
        assert np.ptp(np.diff(ticks)) < 1e-9


# --- the rows --------------------------------------------------------------------------------


def test_the_table_has_every_row(campaign: tuple[Path, Page]) -> None:
    path, page = campaign
    columns = page.unpacked("data-rows")

    def column(name: str) -> list[Any]:
        data = columns[name]
        return data if isinstance(data, list) else [data["names"][k] for k in data["codes"]]

    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT input_index, method, question, status, radius, lower, upper FROM results "
            "ORDER BY rowid"
        ).fetchall()
    names = ("image", "method", "question", "status", "radius")
    assert list(zip(*map(column, names), strict=True)) == [row[:5] for row in rows]
    for shown, exact in zip(column("lower"), [row[5] for row in rows], strict=True):
        assert (shown is None) == (exact is None)
        if exact is not None:
            assert shown <= exact and shown == pytest.approx(exact, rel=1e-5)
    for shown, exact in zip(column("upper"), [row[6] for row in rows], strict=True):
        assert exact is None or (shown >= exact and shown == pytest.approx(exact, rel=1e-5))


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (1 / 3, 0.333333, 0.333334),
        (-1 / 3, -0.333334, -0.333333),
        (123456789.5, 123456000.0, 123457000.0),
        (0.0, 0.0, 0.0),
        (2.5, 2.5, 2.5),
    ],
)
def test_a_shortened_bound_is_still_one(value: float, down: float, up: float) -> None:
    assert shortened(value, "ROUND_FLOOR") == down
    assert shortened(value, "ROUND_CEILING") == up


# --- details ---------------------------------------------------------------------------------


def png_pixels(file: bytes) -> np.ndarray:
    """Read back a PNG without filters, chunk by chunk as the standard says."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(file):
        (length,) = struct.unpack(">I", file[at : at + 4])
        name, content = file[at + 4 : at + 8], file[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", file[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + content)
        chunks.append((name, content))
        at += 12 + length
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, bits, colour = struct.unpack(">IIBB", chunks[0][1][:10])
    assert bits == 8
    raw = np.frombuffer(zlib.decompress(chunks[1][1]), dtype=np.uint8).reshape(height, -1)
    assert not raw[:, 0].any()
    return raw[:, 1:].reshape((height, width, 3) if colour == 2 else (height, width))


@pytest.mark.parametrize("shape", [(2, 3), (28, 28), (4, 5, 3)])
def test_a_png_has_the_pixels_that_were_given(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    file = png_bytes(pixels)
    np.testing.assert_array_equal(png_pixels(file), pixels)
    image = pytest.importorskip("PIL.Image", reason="a second reader needs the extra 'images'")
    import io

    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(file))), pixels)


def test_points_become_images_in_the_order_of_their_shape() -> None:
    point = np.arange(3 * 5 * 5, dtype=np.float64)
    planes, pixels = as_image(point, (3, 5, 5)), as_image(point, (5, 5, 3))
    assert planes is not None and pixels is not None
    assert planes[1, 2].tolist() == [7, 32, 57]
    assert pixels[1, 2].tolist() == [21, 22, 23]
    flat = as_image(np.zeros(784), (784,))
    assert flat is not None and flat.shape == (28, 28)
    assert as_image(np.zeros(5), (5,)) is None
    assert as_image(np.zeros(16), (16,)) is None


def test_differences_are_blue_grey_and_orange() -> None:
    less, same, more = difference(np.zeros((1, 3)), np.array([[-0.1, 0.0, 0.1]]))[0].tolist()
    assert less[2] > less[0] + 100
    assert len(set(same)) == 1
    assert more[0] > more[2] + 100


def test_an_album_keeps_each_picture_once_and_stops_when_full() -> None:
    album = Album(200)
    one, two = shades(np.zeros((2, 2)), -1, 1), shades(np.ones((2, 2)), -1, 1)
    assert album.add(one) == album.add(one.copy()) == 0
    assert album.add(two) == 1
    noise = np.random.default_rng(0).integers(0, 256, (30, 30)).astype(np.uint8)
    assert album.add(noise) is None
    assert len(album.pictures) == 2


def test_details_show_the_stored_points(tmp_path: Path) -> None:
    before = digit(3).astype("<f4").astype(np.float64)
    after = before.copy()
    after[4, 5] += 0.25
    (tmp_path / "proofs").mkdir()
    (tmp_path / "proofs" / "a b.bnncert").write_bytes(b"x")
    row = {
        **{"input_index": 3, "input_hash": "i3", "status": "not_robust"},
        "counterexample": after.astype("<f8").tobytes(),
        "counterexample_json": json.dumps({"target": "class 1", "value_exact": "-1/3"}),
        "certificate": "proofs/a b.bnncert",
        "per_target": json.dumps(
            [
                {"target": "class 1", "status": "not_robust", "lower": None, "upper": -1 / 3}
                | {"seconds": 0.25, "stage": "attack"},
                {"target": "class 2", "status": "robust", "lower": 2.0, "upper": None}
                | {"seconds": 0.5, "stage": "sdp", "details": {"presolve seconds": 0.125}},
            ]
        ),
    }
    page = page_of(
        write_results(tmp_path / "r.sqlite", [row], networks=[NETWORK], inputs=[stored_input(3)])
    )
    entry = page.unpacked("data-details")["0"]
    pictures = [base64.b64decode(p) for p in page.scripts["data-pictures"].split(",")]
    shown = [png_pixels(pictures[k]) for k in entry["pictures"]]
    np.testing.assert_array_equal(shown[0], np.rint((before + 1) * 127.5).astype(np.uint8))
    assert int(shown[1][4, 5]) - int(shown[0][4, 5]) in (31, 32)
    changed = np.argwhere((shown[2] != shown[2][0, 0]).any(axis=-1)).tolist()
    assert changed == [[4, 5]]
    assert entry["change"]["values"] == 1
    assert entry["change"]["largest"] == pytest.approx(0.25)
    assert entry["targets"][0] == ["class 1", "not_robust", None, -0.333333, 0.25, "attack", ""]
    assert entry["stages"] == [["attack", 0.25, 1], ["presolve", 0.125, 2], ["sdp", 0.5, 1]]
    assert entry["found"]["value"] == -0.333333
    link = entry["certificate"]
    assert link == {"name": "a b.bnncert", "href": "./proofs/a%20b.bnncert", "there": True}


def test_few_values_that_are_no_picture_are_shown_as_numbers(tmp_path: Path) -> None:
    point = np.array([0.5, -1.0, 2.0])
    stored = {"input_hash": "i0", "label": 0, "shape": "[3]", "dtype": "<f8"}
    stored["point"] = point.tobytes()
    results = write_results(tmp_path / "r.sqlite", [{}], inputs=[stored])
    assert page_of(results).unpacked("data-details")["0"]["numbers"] == [point.tolist(), None]


def test_details_are_bounded_and_counterexamples_come_first(tmp_path: Path) -> None:
    rows = [{"input_index": k, "input_hash": f"i{k}"} for k in range(20)]
    rows[17] |= {"status": "not_robust", "counterexample": digit(17).astype("<f8").tobytes()}
    page = page_of(write_results(tmp_path / "r.sqlite", rows), details=5)
    assert sorted(map(int, page.unpacked("data-details"))) == [0, 1, 2, 3, 17]
    assert "for 5 of 20 rows" in page.text


# --- what a file may hold --------------------------------------------------------------------

NASTY = "<script>alert(1)</script>\"'&amp;</style>--><img src=x onerror=alert(1)> @@ROWS@@"


def test_nothing_in_a_file_becomes_markup(tmp_path: Path) -> None:
    row = {
        **dict.fromkeys(("model_hash", "norm", "clip", "rivals", "method", "ties"), NASTY),
        **dict.fromkeys(("sign_zero", "stage", "version", "finished_at", "certificate"), NASTY),
        "per_target": json.dumps(
            [{"target": NASTY, "status": NASTY, "stage": NASTY, "note": NASTY}]
        ),
        "counterexample_json": json.dumps({"target": NASTY, "replayed_in": [NASTY]}),
        "upper": 3.0,
    }
    network = {**NETWORK, "model_hash": NASTY, "name": NASTY, "source": NASTY}
    page = page_of(write_results(tmp_path / "r<b>&.sqlite", [row], networks=[network]))
    assert [a.get("id") for t, a in page.elements if t == "script"] == [
        *("data-rows", "data-details", "data-pictures"),
        None,
    ]
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "<script>alert" not in page.source and "<img" not in page.source
    assert NASTY in page.text  # shown as it is
    entry = page.unpacked("data-details")["0"]
    assert entry["certificate"]["href"].startswith("./")
    assert not set(entry["certificate"]["href"]) & set("<>\"'&:")


def test_the_page_asks_the_network_for_nothing(campaign: tuple[Path, Page]) -> None:
    _, page = campaign
    addresses = [a[name] for _, a in page.elements for name in ("src", "href") if name in a]
    assert addresses[0] == "data:," and len(addresses) == 6
    assert all(str(address).startswith("#") for address in addresses[1:])
    assert re.search(r"@import|url\((?!#)", page.source) is None
    (policy,) = [str(a["content"]) for _, a in page.elements if "http-equiv" in a]
    assert "default-src 'none'" in policy
    import hashlib

    digest = hashlib.sha256(page.scripts["code"].encode()).digest()
    assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy


def test_the_page_names_no_folders(campaign: tuple[Path, Page]) -> None:
    path, page = campaign
    assert "sparse.npz" in page.text
    assert "/home/someone" not in page.source
    assert str(path.parent) not in page.source


def test_a_file_without_networks_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    results = write_results(tmp_path / "r.sqlite", [{}, {"radius": 0.125}])
    before = results.read_bytes()
    page = page_of(results)
    assert "a" * 12 in page.text
    assert len(page.having("share")) == 2 * 3
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "fine"}, "row 1: status is 'fine'"),
        ({"question": "why"}, "row 1: question is 'why'"),
        ({"radius": "wide"}, "row 1: radius is 'wide'"),
        ({"radius": -1.0}, "row 1: radius is -1.0"),
        ({"label": "seven"}, "row 1: label is not a whole number"),
        ({"lower": "low"}, "row 1: lower is not a number"),
        ({"method": b"\xff"}, "row 1: method is not text"),
        ({"per_target": "{"}, "row 1, per_target: not a JSON list"),
        ({"counterexample": b"1234567"}, "row 1, counterexample: not an array"),
        ({"counterexample_json": "[]"}, "row 1, counterexample_json: not a JSON object"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    results = write_results(tmp_path / "r.sqlite", [change])
    with pytest.raises(FormatError, match=re.escape(words)):
        page_of(results)


def test_broken_inputs_and_networks_are_named(tmp_path: Path) -> None:
    stored = {**stored_input(0), "shape": "[1, 27, 28]"}
    with pytest.raises(FormatError, match="input i0: not an array of shape"):
        page_of(write_results(tmp_path / "a.sqlite", [{}], inputs=[stored]))
    network = {**NETWORK, "sizes": "many"}
    with pytest.raises(FormatError, match="network aaaaaaaaaaaa: 'many' is not a JSON list"):
        page_of(write_results(tmp_path / "b.sqlite", [{}], networks=[network]))


# --- exports ---------------------------------------------------------------------------------


def test_csv_files_hold_the_rows_and_the_counts(
    tmp_path: Path, campaign: tuple[Path, Page]
) -> None:
    path, _ = campaign
    write_csv(read_recorded(path), tmp_path / "made" / "here")
    with sqlite3.connect(path) as connection:
        stored = connection.execute(
            "SELECT input_index, radius, lower, seconds FROM results ORDER BY rowid"
        ).fetchall()
        groups = connection.execute(
            "SELECT model_hash, norm, radius, method, COUNT(*), SUM(status = 'robust'), "
            "SUM(status = 'not_robust'), SUM(status IN ('unknown', 'timeout')), "
            "SUM(status = 'misclassified') FROM results WHERE question = 'verify' "
            "GROUP BY 1, 2, 3, 4"
        ).fetchall()

    def read(name: str) -> list[dict[str, str]]:
        with (tmp_path / "made" / "here" / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    rows = [
        (
            int(r["input_index"]),
            float(r["radius"]),
            float(r["lower"]) if r["lower"] else None,
            float(r["seconds"]),
        )
        for r in read("results.csv")
    ]
    assert rows == stored
    numbers = ("instances", "robust", "not_robust", "undecided", "misclassified")
    summary = [
        (r["model_hash"], r["norm"], float(r["radius"]), r["series"], *(int(r[n]) for n in numbers))
        for r in read("summary.csv")
    ]
    assert sorted(summary) == sorted(groups)
    assert {r["reference"] for r in read("improvements.csv")} == {"sdp"}


def test_latex_tables_have_the_layout_of_the_comparison(tmp_path: Path) -> None:
    step = 2 / 255
    rows = []
    for k, (radius, method, status, seconds) in enumerate(
        [
            (0.25 * step, "lp", "robust", 1.0),
            (0.25 * step, "lp", "unknown", 3.0),
            (0.25 * step, "sdp", "robust", 10.0),
            (0.25 * step, "sdp", "robust", 20.0),
            (0.25 * step, "milp", "not_robust", 4.0),
            (0.25 * step, "milp", "timeout", 600.0),
            (1.5 * step, "sdp", "robust", 5.0),
        ]
    ):
        rows.append(
            {
                **{"input_index": k % 2, "input_hash": f"i{k % 2}", "radius": radius},
                **{"method": method, "status": status, "seconds": seconds, "lower": 2.678},
                "timeout": 600.0,
            }
        )
    network = {**NETWORK, "name": "BNN_1"}
    results = write_results(tmp_path / "r.sqlite", rows, networks=[network])
    comparison, images = write_latex(read_recorded(results), tmp_path / "tex")
    assert (comparison.name, images.name) == ("BNN_1-linf.tex", "BNN_1-linf-images.tex")
    text = comparison.read_text()
    assert r"BNN\_1 \\ $[784, 500, 500, 10]$ \\ $w_s=34.34\%$" in text
    assert r"$0.25$ & 1 & 2.00 (2.00) & 2 & 15.00 (15.00) & 1 $|$ 0 & 302.00 (302.00) \\" in text
    assert r"$1.5$ & -- & -- & 1 & 5.00 (5.00) & -- & -- \\" in text
    text = images.read_text()
    # The reference comes first, its bound rounded down.
    assert r"0 & 2.67 & 10.00 & 2.67 & 1.00 & not robust & 4.00 \\" in text
    assert r"1 & 2.67 & 20.00 & 2.67 & 3.00 & timeout & $>600$ \\" in text


@pytest.mark.parametrize("which", [0, 1])
def test_latex_lines_have_as_many_cells_as_columns(
    which: int, tmp_path: Path, campaign: tuple[Path, Page]
) -> None:
    written = write_latex(read_recorded(campaign[0]), tmp_path)
    assert len(written) == 8
    for path in written[which::2]:
        text = path.read_text()
        match = re.search(r"\\begin\{tabular\}\{([c|]+)\}", text)
        assert match is not None
        for row in re.findall(r"^(.*?) *\\\\$", text, re.M):
            plain = re.sub(r"\\shortstack\[l\]\{.*?%\$\}", "", row)
            cells = sum(
                int(span.group(1)) if (span := re.search(r"\\multicolumn\{(\d+)\}", cell)) else 1
                for cell in plain.split("&")
            )
            assert cells == match.group(1).count("c"), row
        assert text.count("{") == text.count("}")


def test_latex_prints_names_as_they_are() -> None:
    assert escape("a_b & 50% #1 {x} $y$ ~ ^ \\input") == (
        r"a\_b \& 50\% \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{} \textbackslash{}input"
    )
    assert "\n" not in escape("two\nlines")


# --- the command -----------------------------------------------------------------------------


def test_the_command_writes_all_three(tmp_path: Path, run: Run) -> None:
    results = write_results(tmp_path / "r.sqlite", [{}], networks=[NETWORK])
    page, tables, tex = tmp_path / "page.html", tmp_path / "csv", tmp_path / "tex"
    done = run(str(results), "-o", str(page), "--csv", str(tables), "--latex", str(tex))
    assert (done.code, done.err) == (0, "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert sorted(p.name for p in tables.iterdir()) == [
        *("improvements.csv", "results.csv", "summary.csv"),
    ]
    assert [p.name for p in sorted(tex.iterdir())] == ["sparse-linf-images.tex", "sparse-linf.tex"]


def test_latex_without_a_table_says_why(tmp_path: Path, run: Run) -> None:
    results = write_results(tmp_path / "r.sqlite", [{"question": "bound"}], networks=[NETWORK])
    done = run(str(results), "--latex", str(tmp_path / "tex"))
    assert done.code == 2 and done.err.count("\n") == 1
    assert "the file has answers of `bound` only; --csv DIR and -o PAGE.html" in done.err
    assert not (tmp_path / "tex").exists()
    done = run(str(results), "--latex", str(tmp_path / "tex"), "-o", str(tmp_path / "p.html"))
    assert done.code == 0 and "--latex writes nothing" in done.out


def test_flat_inputs_whose_number_is_a_square_have_thumbnails(tmp_path: Path) -> None:
    network = {**NETWORK, "input_shape": "[784]"}
    inputs = [{**stored_input(k), "shape": "[784]"} for k in range(2)]
    rows = [{"input_index": k, "input_hash": f"i{k}"} for k in range(2)]
    recorded = read_recorded(
        write_results(tmp_path / "r.sqlite", rows, networks=[network], inputs=inputs)
    )
    found = collect_details(recorded, tmp_path / "page.html", 10)
    assert found.inputs == {"i0": 0, "i1": 1} and len(found.pictures) == 2
    order = {row.rowid: k for k, row in enumerate(recorded.rows)}
    columns = table_columns(panels(recorded), order, found.inputs)
    assert columns["picture"]["names"] == [0, 1]


def test_bad_files_are_one_line_and_exit_code_2(tmp_path: Path, run: Run) -> None:
    good = write_results(tmp_path / "good.sqlite", [{} for _ in range(400)])
    files = {
        "empty.sqlite": (b"", "holds no results yet"),
        "text.sqlite": (b"hello", "not a bnncert results file"),
        "cut.sqlite": (good.read_bytes()[:6000], "cut.sqlite: "),
        "noise.sqlite": (good.read_bytes()[:4096] + b"\x55" * 40000, "noise.sqlite: "),
    }
    cases = {"none.sqlite": "none.sqlite: no such file", ".": "is a directory, expected a file"}
    for name, (content, words) in files.items():
        (tmp_path / name).write_bytes(content)
        cases[name] = words
    new = write_results(tmp_path / "new.sqlite", [{}])
    with sqlite3.connect(new) as connection:
        connection.execute("UPDATE meta SET value = '9' WHERE name = 'schema_version'")
    cases["new.sqlite"] = "schema version 9; this bnncert reads version 8"
    write_results(tmp_path / "norows.sqlite", [])
    cases["norows.sqlite"] = "holds no results yet"
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE meta (a, b)")
    cases["other.sqlite"] = "not a bnncert results file"
    for name, words in cases.items():
        with pytest.raises(InputError, match=re.escape(words)) as caught:
            write_page(read_recorded(tmp_path / name), tmp_path / "page.html")
        assert "\n" not in str(caught.value), name
    assert not (tmp_path / "page.html").exists()
    done = run(str(tmp_path / "noise.sqlite"), "-o", str(tmp_path / "page.html"))
    assert done.code == 2
    assert len(done.err.splitlines()) == 1 and "Traceback" not in done.err


def test_a_missing_results_file_is_named_before_what_to_write(tmp_path: Path, run: Run) -> None:
    done = run(str(tmp_path / "none.sqlite"))
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("none.sqlite: no such file\n")


def test_a_locked_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnncert.results.store.BUSY_SECONDS", 0.1)
    results = write_results(tmp_path / "r.sqlite", [{}])
    connection = sqlite3.connect(results, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError, match=r"r\.sqlite: cannot be read \(database is locked\)"):
        read_recorded(results)
    connection.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "nothing to write"),
        (["-o", "nowhere/page.html"], "No such directory"),
        (["-o", "r.sqlite"], "this command reads it"),
        (["--csv", "r.sqlite"], "File exists"),
    ],
)
def test_options_that_cannot_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    from typer.testing import CliRunner

    from bnncert.cli.program import app

    monkeypatch.chdir(tmp_path)
    write_results(Path("r.sqlite"), [{}])
    before = Path("r.sqlite").read_bytes()
    outcome = CliRunner().invoke(app, ["report", "r.sqlite", *options])
    assert isinstance(outcome.exception, InputError)
    assert words in str(outcome.exception)
    assert Path("r.sqlite").read_bytes() == before


# --- size ------------------------------------------------------------------------------------


def test_many_rows(tmp_path: Path) -> None:
    """A hundred thousand take 30 s and 20 MB at the most: here it is a tenth of all three."""
    results = large_file(tmp_path / "large.sqlite", 10_000)
    begin = time.process_time()
    write_page(read_recorded(results), tmp_path / "large.html")
    assert time.process_time() - begin < 3
    assert (tmp_path / "large.html").stat().st_size < 2_000_000
    page = Page(tmp_path / "large.html")
    assert len(page.unpacked("data-rows")["image"]) == 10_000
    assert len(page.unpacked("data-details")) == 2000
