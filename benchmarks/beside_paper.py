"""The counts of a results file as a table, with the paper's numbers for the same radii beside them.

    make bench-paper
    python benchmarks/beside_paper.py bench-paper.sqlite

For answers to `bnncert experiment paper-linf`, `paper-l2` and their reduced forms.  A cell has the
robust images (and those with a counterexample), and the mean seconds over all images that the
network classifies correctly.  The paper's are out of 100 images, on its own networks of the same
sizes, with 600 s, Mosek, Gurobi and 12 cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bnncert.batch.recorded import read_recorded
from bnncert.report.counts import Count
from bnncert.report.statistics import counts, panels

#: network, norm, delta: robust | counterexamples of 100 images, and mean seconds.
PAPER: dict[tuple[str, str, float], tuple[str, str, str]] = {
    ("BNN1", "linf", 0.25): ("83, 0.01 s", "91, 3.6 s", "95 / 3, 0.04 s"),
    ("BNN1", "linf", 0.5): ("31, 0.02 s", "60, 6.7 s", "94 / 4, 1.2 s"),
    ("BNN1", "linf", 1.0): ("1, 0.03 s", "21, 10.8 s", "50 / 15, 252 s"),
    ("BNN1", "linf", 1.5): ("0, 0.06 s", "6, 38.3 s", "12 / 20, 428 s"),
    ("BNN2", "linf", 0.25): ("14, 0.03 s", "59, 12.0 s", "95 / 3, 2.2 s"),
    ("BNN2", "linf", 0.5): ("0, 0.05 s", "23, 42.4 s", "63 / 9, 221 s"),
    ("BNN2", "linf", 0.75): ("0, 0.08 s", "9, 139 s", "19 / 10, 456 s"),
    ("BNN1", "l2", 10.0): ("", "70, 5.2 s", "93 / 3, 33.4 s"),
    ("BNN1", "l2", 20.0): ("", "36, 19.5 s", "30 / 4, 447 s"),
    ("BNN1", "l2", 30.0): ("", "13, 34.2 s", "6 / 4, 556 s"),
    ("BNN2", "l2", 5.0): ("", "81, 8.6 s", "96 / 2, 3.3 s"),
    ("BNN2", "l2", 10.0): ("", "46, 19.0 s", "58 / 3, 273 s"),
    ("BNN2", "l2", 15.0): ("", "27, 63.2 s", "23 / 4, 476 s"),
}

#: delta = scale * eps.
SCALE = {"linf": 127.5, "l2": 255.0}

COLUMNS = ("lp", "sdp-tight", "exact", "sdp", "auto")
SERIES = {"milp form=soft": "exact", "minp form=soft": "exact"}


def cell(count: Count) -> str:
    """Return robust images, counterexamples if there are any, and mean seconds."""
    found = f" / {count.not_robust}" if count.not_robust else ""
    return f"{count.robust}{found}, {count.mean_seconds:.2g} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    rows: dict[tuple[str, str, float], dict[str, Count]] = {}
    for panel in panels(read_recorded(arguments.results)):
        if panel.norm not in SCALE or panel.targets != "runner-up":
            continue
        for count in counts(panel):
            delta = round(SCALE[panel.norm] * count.radius, 4)
            name = SERIES.get(count.series, count.series)
            rows.setdefault((panel.network.name, panel.norm, delta), {})[name] = count
    titles = ["network", "region", "asked", *COLUMNS, *(f"the paper's {c}" for c in COLUMNS[:3])]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for (network, norm, delta), found in rows.items():
        asked = max(c.instances - c.misclassified for c in found.values())
        cells = [cell(found[c]) if c in found else "-" for c in COLUMNS]
        known = [text or "-" for text in PAPER.get((network, norm, delta), ("", "", ""))]
        print("| " + " | ".join([network, f"{norm} {delta:g}", str(asked), *cells, *known]) + " |")


if __name__ == "__main__":
    main()
