"""The charts: ticks, what is drawn for how many radii, and what is left out with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnncert.report.page.charts import accuracy_chart, cactus_chart, gap_charts, series_numbers
from bnncert.report.page.markup import Axis, AxisScale
from bnncert.report.page.outcomes import outcome_chart
from bnncert.report.statistics import Panel, counts, gaps, panels
from bnncert.results.store import read_recorded
from tests.report.results_sketch import NETWORK, write_results


def panel_of(tmp_path: Path, rows: list[dict[str, Any]]) -> Panel:
    (panel,) = panels(read_recorded(write_results(tmp_path / "r.sqlite", rows, networks=[NETWORK])))
    return panel


def test_a_method_looks_the_same_in_all_panels(tmp_path: Path) -> None:
    asked = {"linf": ("lp", "sdp"), "l2": ("sdp", "auto", "lp"), "l1": ("sample", "auto")}
    rows = [{"norm": norm, "method": m} for norm, methods in asked.items() for m in methods]
    known = panels(read_recorded(write_results(tmp_path / "r.sqlite", rows)))
    assert [series_numbers(panel) for panel in known] == [
        {"lp": 0, "sdp": 1},
        {"sdp": 1, "auto": 2, "lp": 0},
        {"sample": 3, "auto": 2},
    ]
    (tmp_path / "r.sqlite").unlink()
    many = [{"method": f"m{k}"} for k in range(9)] + [
        {"norm": "l2", "method": m} for m in ("m8", "m0")
    ]
    first, second = panels(read_recorded(write_results(tmp_path / "r.sqlite", many)))
    assert len(set(series_numbers(first).values())) == 9
    # Number 8 has the style of number 0.
    assert series_numbers(second) == {"m8": 0, "m0": 1}


@pytest.mark.parametrize("high", [1, 2, 3, 7, 40, 1234])
def test_ticks_of_counts_are_whole_numbers(high: int) -> None:
    ticks = AxisScale(0, high, 0, 400).ticks(5, whole=True)
    assert all(tick == round(tick) for tick in ticks)
    assert len(set(ticks)) == len(ticks) >= 2


def test_given_ticks_that_would_overlap_are_left_out() -> None:
    given = [(1.0, "1"), (1.01, "1.01"), (2.0, "2")]
    axis = Axis(AxisScale(1, 2, 0, 300), "radius", given=given)
    assert axis.ticks(6) == [(0, "1"), (300, "2")]


def radii(*steps: float) -> list[dict[str, Any]]:
    return [
        {"radius": step * 2 / 255, "status": "robust" if k == 0 else "unknown", "method": method}
        for k, step in enumerate(steps)
        for method in ("sdp", "bab")
    ]


def test_two_radii_are_points_and_three_are_a_line(tmp_path: Path) -> None:
    two = panel_of(tmp_path, radii(0.5, 1))
    html = accuracy_chart(two, counts(two)).html
    assert html.count('class="range"') == 4
    assert html.count('<g class="curve"') == html.count('unseen" d=') == 4
    (tmp_path / "r.sqlite").unlink()
    three = panel_of(tmp_path, radii(0.5, 1, 2))
    html = accuracy_chart(three, counts(three)).html
    assert html.count('<g class="curve"') == 4 and "unseen" not in html and "range" not in html
    assert "sdp, 0.5 px: 100.0 % certified of 1" in html


def test_a_chart_without_information_says_why_it_is_left_out(tmp_path: Path) -> None:
    one = panel_of(tmp_path, radii(0.5))
    assert accuracy_chart(one, counts(one)).left_out == "all answers are about one radius"
    assert outcome_chart(one, counts(one)).html
    (tmp_path / "r.sqlite").unlink()
    rows = [{"radius": step * 2 / 255, "status": "unknown", "lower": -1.0} for step in (0.5, 1)]
    flat = panel_of(tmp_path, rows)
    chart = accuracy_chart(flat, counts(flat))
    assert not chart.html
    assert chart.left_out == "every radius and method has 0.0 % certified and 100.0 % not falsified"
    assert outcome_chart(flat, counts(flat)).left_out == "only sdp was asked, see the table above"
    assert cactus_chart(flat).left_out == "no instance was decided"
    reasons = [chart.left_out for chart in gap_charts(flat, gaps(flat))]
    assert reasons == ["there is one instance"] * 2


def test_the_figure_of_bounds_is_that_of_the_paper(tmp_path: Path) -> None:
    bounds = {"sample samples=10": 9.0, "lp": 1.0, "sdp-tight": 4.0, "sdp": 5.0}
    rows = [
        {
            **{"input_index": k, "input_hash": f"i{k}", "method": method, "question": "bound"},
            **{"status": "unknown", "lower": None, "upper": None},
            **({"upper": value + k} if method.startswith("sample") else {"lower": value - k}),
        }
        for k in range(3)
        for method, value in bounds.items()
    ]
    panel = panel_of(tmp_path, rows)
    (gap,) = gaps(panel)
    assert (gap.upper_name, gap.sorted_by, gap.images) == ("sample", "sdp-tight", (0, 1, 2))
    assert gap.lower["sdp-tight"] == (4.0, 3.0, 2.0)
    # sdp over the others, and the paper's own sdp-tight over lp.
    pairs = [(one.reference, one.other) for one in gap.improvements]
    assert pairs == [("sdp", "lp"), ("sdp", "sdp-tight"), ("sdp-tight", "lp")]
    (chart,) = gap_charts(panel, [gap])
    legend = chart.html[chart.html.index('<ul class="legend">') :]
    places = [legend.index(f" {name}<") for name in ("upper bound (sample)", "sdp", "sdp-tight")]
    assert places == sorted(places) and legend.index(" lp<") > places[-1]
    assert "sdp-tight, image 1: at least 3" in chart.html
