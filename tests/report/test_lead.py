"""What the page leads with: the answers of all methods together, radius by radius; its title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnncert.report.page.document import page_text, page_title
from bnncert.report.page.outcomes import lead_section
from bnncert.report.statistics import panels, together
from bnncert.results.store import ResultsFile, read_recorded
from tests.report.results_sketch import NETWORK, write_results

ANSWERS = {  # image: the answers of lp, sdp and bab
    0: ("unknown", "robust", "robust"),
    1: ("unknown", "unknown", "not_robust"),
    2: ("unknown", "unknown", "timeout"),
    3: ("misclassified", "misclassified", "misclassified"),
}


def rows() -> list[dict[str, Any]]:
    return [
        {"input_index": k, "input_hash": f"i{k}", "method": method, "status": status}
        for k, answers in ANSWERS.items()
        for method, status in zip(("lp", "sdp", "bab"), answers, strict=True)
    ]


def test_an_input_is_decided_if_one_method_decided_it(tmp_path: Path) -> None:
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", rows(), networks=[NETWORK]))
    (panel,) = panels(recorded)
    (one,) = together(panel)
    count = one.count
    assert (count.instances, count.robust, count.not_robust) == (4, 1, 1)
    assert (count.undecided, count.misclassified, one.falsified) == (1, 1, 2)
    assert one.contradictions == ()


def test_radii_are_never_added_up(tmp_path: Path) -> None:
    more = [{**row, "radius": 1.0 * 2 / 255, "status": "unknown"} for row in rows()]
    network = [NETWORK]
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", rows() + more, networks=network))
    text = lead_section(panels(recorded))
    assert text.count("of 4") == 6 and "of 8" not in text
    assert "25.0 %</b> <small>1 of 4" in text and "100.0 %</b> <small>4 of 4" in text


def test_opposite_verdicts_are_a_warning(tmp_path: Path) -> None:
    wrong = [*rows(), {"input_index": 1, "input_hash": "i1", "method": "milp", "status": "robust"}]
    recorded = read_recorded(write_results(tmp_path / "r.sqlite", wrong, networks=[NETWORK]))
    (panel,) = panels(recorded)
    assert together(panel)[0].contradictions == (1,)
    text = lead_section([panel])
    assert "Contradiction at 0.5 px: image 1 is both robust and not robust" in text


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"labels": "given"}, "certified accuracy"),
        ({}, "certified share"),
        ({"targets": "runner-up"}, "certified against the runner-up"),
        ({"targets": "4"}, "certified against class 4"),
    ],
)
def test_only_a_share_over_all_classes_is_an_accuracy(
    tmp_path: Path, change: dict[str, Any], name: str
) -> None:
    results = write_results(tmp_path / "r.sqlite", [change], networks=[NETWORK])
    (panel,) = panels(read_recorded(results))
    assert panel.certified_name == name


def test_the_title_is_that_of_the_experiments(tmp_path: Path) -> None:
    path = write_results(tmp_path / "r.sqlite", rows(), networks=[NETWORK])
    assert page_title(read_recorded(path)) == "Robustness of sparse"
    with ResultsFile(path) as results:
        for title in ("First <b>", "Second\nline", "First <b>", " "):
            results.add_title(title)
        assert results.titles() == ["First <b>", "Second line"]
    recorded = read_recorded(path)
    assert page_title(recorded) == "First <b>; Second line"
    text = page_text(recorded, tmp_path / "page.html")
    assert "<h1>First &lt;b&gt;; Second line</h1>" in text
