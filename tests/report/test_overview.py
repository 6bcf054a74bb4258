"""Results files in Python: a table for print, pictures for notebooks."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

import bnncert
from tests.report.results_sketch import NETWORK, campaign_file, write_results


def test_print_shows_a_line_for_each_radius(tmp_path: Path) -> None:
    results = bnncert.read_results(campaign_file(tmp_path / "r.sqlite", images=12))
    lines = str(results).splitlines()
    assert lines[0] == f"Robustness of sparse, dense: {len(results.rows)} answers"
    assert lines[1].split() == ["question", "radius", "inputs", *lines[1].split()[-3:]]
    assert len(lines) == 2 + 2 * 2 * 4
    assert repr(results) == f"ResultsOverview(r.sqlite, {len(results.rows)} answers)"
    assert len(results.panels) == 4


def test_a_notebook_shows_inputs_and_counterexamples(tmp_path: Path) -> None:
    results = bnncert.read_results(campaign_file(tmp_path / "r.sqlite", images=12))
    html = results._repr_html_()
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert html.count('alt="counterexample"') >= 6
    assert len(pictures) <= 2 * 12
    assert all(base64.b64decode(p).startswith(b"\x89PNG") for p in pictures)
    found = next(row for row in results.rows if row.status == "not_robust")
    point = results.evidence(found).counterexample
    assert point is not None and point.size == 784


def test_names_from_the_file_stay_text(tmp_path: Path) -> None:
    network = {**NETWORK, "name": "<script>alert(1)</script>"}
    path = write_results(tmp_path / "r.sqlite", [{}], networks=[network])
    html = bnncert.read_results(path)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_a_file_without_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(bnncert.InputError, match="holds no results yet"):
        bnncert.read_results(write_results(tmp_path / "r.sqlite", []))
