"""Explanations, weight faults and counts in the page, the tables and the overview."""

from __future__ import annotations

import base64
import csv
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import FormatError
from bnncert.regions.pictures import marked
from bnncert.report.csv_export import write_csv
from bnncert.report.latex_export import write_latex
from bnncert.report.other_answers import SHOWN_KINDS, count_text
from bnncert.results.rows import Kind
from bnncert.results.store import Recorded, read_recorded
from tests.in_process import command_line
from tests.report.other_sketch import LONG, answer, count, explanation, faults, other_file
from tests.report.results_sketch import campaign_file, write_results
from tests.report.test_page import Page, page_of, png_pixels


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_file(tmp_path_factory.mktemp("others") / "r.sqlite")


def section_of(page: Page, name: str) -> str:
    """Return the HTML of a section."""
    found = re.search(rf'<section[^>]*aria-labelledby="{name}".*?</section>', page.source, re.S)
    assert found is not None
    return found[0]


def lines_of(html: str) -> list[list[str]]:
    """Return the cells of a table as text, line by line."""
    cell = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.S)
    return [
        [re.sub(r"<[^>]*>", "", text) for text in cell.findall(line)]
        for line in re.findall(r"<tr>(.*?)</tr>", html, re.S)
    ]


def test_a_page_of_other_answers_alone(others: Path) -> None:
    page = page_of(others)
    assert "Answers about sparse" in page.text
    assert "7 answers in r.sqlite" in page.text
    assert not [a for _, a in page.elements if a.get("id") == "lead"]
    (table,) = [a for tag, a in page.elements if a.get("aria-labelledby") == "answers"]
    assert "hidden" in table
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert [a["href"] for a in page.having("skip")] == ["#kind-explain"]
    assert "/home/x" not in page.source


def test_explanations_show_the_kept_inputs(others: Path, tmp_path: Path) -> None:
    (others.parent / "proofs").mkdir()
    (others.parent / "proofs" / "0.bnncert").touch()
    html = section_of(page_of(others), "kind-explain")
    heads, first, second = lines_of(html)
    kept = explanation(0)["kept"]
    assert first[0] == "digits.npz [0]"
    assert f"{len(kept)} of 784 ({100 * len(kept) / 784:.1f} %)" in first
    assert "minimal" in first and "sufficient, 7 open" in second
    assert 'href="./proofs/0.bnncert"' in html
    assert (first[-1], second[-1], heads[-1]) == ("0.bnncert", "-", "certificate")
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    pixels = png_pixels(base64.b64decode(pictures[0])).astype(int)
    # Kept pixels have a colour, all others are grey.
    coloured = pixels.max(axis=2) > pixels.min(axis=2)
    assert np.flatnonzero(coloured).tolist() == kept


def test_points_that_are_not_pictures_are_listed(tmp_path: Path) -> None:
    payload = {"inputs": 3, "kept": [0, 2], "open": [2], "minimal": False}
    results = other_file(tmp_path / "r.sqlite", [answer("explain", 9, payload)])
    html = section_of(page_of(results), "kind-explain")
    assert "0, 2" in lines_of(html)[1] and "<img" not in html


def test_faults_have_a_row_for_each_image_and_scope(others: Path) -> None:
    html = section_of(page_of(others), "kind-faults")
    heads, *lines = lines_of(html)
    assert len(lines) == 3 * 3
    at = [heads.index(name) for name in ("where", "certified", "falsified")]
    assert [lines[3][k] for k in at] == ["anywhere", "1", "2"]
    assert [lines[5][k] for k in at] == ["output", "all 999", "-"]
    assert lines[3][at[-1] + 1] == "exact" and lines[4][at[-1] + 1] == "open"
    assert "layer 1, neuron 4, input 17: 1 -&gt; -1" in html
    assert "layer 2, neuron 3: threshold stuck, sign -1" in html
    # The bar of a scope ends at the median of the certified numbers.
    assert "layer 1: median 4, 3 to 5 of 3 inputs" in html
    widths = [float(w) for w in re.findall(r'class="seg robust"[^>]*width="([\d.]+)"', html)]
    assert len(widths) == 2
    assert widths[0] == pytest.approx(1 / 4 * widths[1], abs=0.2)


def test_counts_are_rounded_outwards(others: Path) -> None:
    _, first, second = lines_of(section_of(page_of(others), "kind-count"))
    assert first[3:7] == ["4,096", "12", "12", "0.2929 to 0.293 %"]
    assert "exact" in first and "25 % (20.12 to 30.13 %, level 99 %)" in first
    assert second[3:7] == ["1e400", "0", "1e397", "0 to 0.1 %"]
    assert "open" in second and "-" in second


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        ("0", "0", "0"),
        ("999999999999999", "999,999,999,999,999", "999,999,999,999,999"),
        ("1234567890123456", "1.234e15", "1.235e15"),
        ("9" * 5000, "9.999e4999", "1e5000"),
    ],
)
def test_texts_of_counts(value: str, lower: str, upper: str) -> None:
    texts = [count_text(Decimal(value), side) for side in (ROUND_FLOOR, ROUND_CEILING)]
    assert texts == [lower, upper]


def test_both_kinds_of_answers_in_one_file(tmp_path: Path) -> None:
    results = other_file(campaign_file(tmp_path / "r.sqlite", images=2))
    page = page_of(results)
    rows = len(read_recorded(results).rows)
    assert f"{rows + 7} answers in r.sqlite" in page.text
    assert len(page.unpacked("data-rows")["row"]) == rows
    assert all(
        section_of(page, name)
        for name in ("lead", "kind-explain", "kind-faults", "kind-count", "answers")
    )
    (table,) = [a for tag, a in page.elements if a.get("aria-labelledby") == "answers"]
    assert "hidden" not in table


def test_a_file_without_such_answers_has_no_sections(tmp_path: Path) -> None:
    page = page_of(write_results(tmp_path / "r.sqlite", [{}]))
    assert not re.search(r'aria-labelledby="kind-', page.source)


def test_nothing_of_an_answer_becomes_markup(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    rows = faults(1)
    rows["rows"][0]["name"] = rows["rows"][0]["faults"] = evil
    words = {"input_name": evil, "region": evil, "certificate": evil, "summary": evil}
    answers = [
        answer("explain", 0, explanation(0), **words),
        answer("faults", 0, rows, **words),
        answer("count", 0, count("1", "2", "3"), **words),
    ]
    page = page_of(other_file(tmp_path / "r.sqlite", answers))
    assert "<script>alert" not in page.source
    assert "&lt;script&gt;alert" in page.source


Change = Callable[[dict[str, Any]], object]
SHOWN = {shown.kind: shown for shown in SHOWN_KINDS}


@pytest.mark.parametrize(
    ("kind", "payload", "change"),
    [
        ("explain", explanation(0), lambda p: p.pop("kept")),
        ("explain", explanation(0), lambda p: p.update(kept=[784])),
        ("explain", explanation(0), lambda p: p.update(kept=["0"])),
        ("explain", explanation(0), lambda p: p.update(inputs=0, kept=[])),
        ("explain", explanation(0), lambda p: p.update(open=3)),
        ("faults", faults(0), lambda p: p.update(rows=5)),
        ("faults", faults(0), lambda p: p["rows"][0].update(certified=-1)),
        ("faults", faults(0), lambda p: p["rows"][0].update(bits=[{"layer": 1}])),
        ("faults", faults(0), lambda p: p["rows"][0]["bits"][0].update(old=None)),
        ("count", count("1", "2", "3"), lambda p: p.update(lower="9")),
        ("count", count("1", "2", "3"), lambda p: p.update(lower=1)),
        ("count", count("1", "2", "3"), lambda p: p.update(upper="two")),
        ("count", count("0", "0", "0"), lambda p: None),
        ("count", count("1", "2", "3"), lambda p: p["estimate"].update(low=None)),
    ],
)
def test_payloads_of_another_form_are_named(
    kind: Kind, payload: dict[str, Any], change: Change
) -> None:
    change(payload)
    recorded = Recorded(Path("r.sqlite"), (), {}, others=(answer(kind, 0, payload, rowid=3),))
    words = f"r.sqlite: answer 3: the payload is not that of {kind}"
    with pytest.raises(FormatError, match=re.escape(words)):
        SHOWN[kind].lines(recorded)


def test_csv_files_have_the_answers(others: Path, tmp_path: Path) -> None:
    recorded = read_recorded(others)
    written = write_csv(recorded, tmp_path / "csv")
    assert [p.name for p in written][3:] == ["explanations.csv", "faults.csv", "counts.csv"]
    tables = {p.name: list(csv.DictReader(p.open(encoding="utf-8"))) for p in written}
    first, second = tables["explanations.csv"]
    assert first["kept_inputs"] == " ".join(map(str, explanation(0)["kept"]))
    assert (first["open"], second["open"], first["certificate"]) == ("0", "7", "proofs/0.bnncert")
    assert len(tables["faults.csv"]) == 9
    assert tables["faults.csv"][2]["falsified"] == ""
    assert tables["counts.csv"][1]["total"] == LONG
    assert tables["counts.csv"][0]["estimate_low"] == "0.2012345"
    assert tables["results.csv"] == []
    assert write_latex(recorded, tmp_path / "tex") == []


def test_files_without_answers_are_not_written(tmp_path: Path) -> None:
    results = other_file(tmp_path / "r.sqlite", [answer("count", 0, count("1", "1", "2"))])
    names = [p.name for p in write_csv(read_recorded(results), tmp_path / "csv")]
    assert names[3:] == ["counts.csv"]


def test_print_has_a_line_for_each_kind(others: Path) -> None:
    results = bnncert.read_results(others)
    assert repr(results) == "ResultsOverview(r.sqlite, 7 answers)"
    assert len(results.others) == 7
    kept = sorted(len(explanation(k)["kept"]) for k in (0, 1))
    assert str(results).splitlines()[-3:] == [
        f"2 explanations, 1 minimal; inputs kept: median {kept[0]}, {kept[0]} to {kept[1]}",
        "weight faults: 3 answers about 9 scopes, 6 exact",
        "2 counts of points, 1 exact",
    ]


def test_report_and_compare_take_such_files(
    others: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command = command_line(monkeypatch, capsys)
    done = command("report", str(others), "-o", "page.html", "--csv", "csv")
    assert (done.code, done.err) == (0, "")
    assert "7 answers of" in done.out and "2 counts of points, 1 exact" in done.out
    compared = command("diff", str(others), str(others), "-o", "changes.html")
    assert (compared.code, compared.err) == (0, "")
    assert "no answer, bound or time has changed" in compared.out


def test_marked_pixels_are_orange_and_keep_their_shade() -> None:
    grey = np.array([[0, 255], [100, 200]], dtype=np.uint8)
    found = marked(grey, np.array([[True, True], [False, True]])).astype(int)
    assert found[1, 0].tolist() == [100, 100, 100]
    for place in ((0, 0), (0, 1), (1, 1)):
        red, green, blue = found[place]
        assert red > green > blue
    assert found[0, 0].sum() < found[1, 1].sum() < found[0, 1].sum()
    colour = np.stack([grey] * 3, axis=2)
    one = np.zeros((2, 2, 3), dtype=bool)
    one[0, 1, 2] = True
    assert (np.ptp(marked(colour, one).astype(int), axis=2) > 0).tolist() == [[0, 1], [0, 0]]
