"""The answers of a results file as tables, with the paper's numbers beside them.

    make bench-paper
    python benchmarks/beside_paper.py bench-paper.sqlite

For answers to `bnncert experiment paper-linf`, `paper-l2`, `paper-gap`, `paper-random` and their
reduced forms.  A cell of the first table has the robust images (and those with a counterexample),
and the mean seconds over all images that the network classifies correctly.  The paper's are out of
100 images, on its own networks of the same sizes, with 600 s, Mosek, Gurobi and 12 cores; its
random networks are not public, and were solved on 26 cores, so only the ratios of bounds compare.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from bnncert.report.statistics import Count, Panel, counts, gaps, panels
from bnncert.results.store import read_recorded

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

#: delta_inf: relative improvement of sdp-tight over lp, BNN1.
PAPER_IMPROVEMENT = {0.25: "21 %", 0.5: "33 %", 1.0: "46 %"}

#: Random network: bounds of sdp-tight, sdp-standard and lp, seconds of sdp-tight.
PAPER_RANDOM: dict[str, tuple[float, float, float, float]] = {
    "300-100-100-dense": (-24.71, -78.64, -78.83, 413.51),
    "500-100-100-dense": (-27.17, -78.58, -77.89, 795.41),
    "300-100-100-100-dense": (-19.49, -77.06, -76.81, 739.21),
    "500-100-100-100-dense": (-32.35, -82.35, -81.94, 928.16),
    "1000-100-100-100-dense": (-26.19, -81.70, -81.32, 1764.67),
    "300-100-100-100-100-dense": (-30.58, -80.59, -80.42, 966.76),
    "500-100-100-100-100-dense": (-16.19, -77.61, -77.25, 1341.33),
    "1000-100-100-100-100-dense": (-18.31, -76.32, -75.89, 1959.30),
    "300-100-100-100-100-100-dense": (-28.62, -80.95, -80.99, 1012.18),
    "500-100-100-100-100-100-dense": (-16.04, -78.10, -78.12, 1255.16),
    "1000-100-100-100-100-100-dense": (-32.54, -83.93, -82.84, 2225.89),
    "500-100-100-s10": (-80.84, -94.59, -98.16, 12.53),
    "800-200-200-s10": (-181.52, -194.96, -198.97, 218.72),
    "1000-100-100-s10": (-81.13, -94.72, -98.18, 13.44),
    "1000-200-200-s10": (-174.13, -192.79, -198.61, 243.87),
    "1000-300-300-s10": (-242.60, -283.95, -297.99, 1203.41),
    "1000-100-100-100-s10": (-72.79, -92.98, -97.78, 69.70),
    "1000-100-100-100-100-s10": (-81.81, -95.30, -98.30, 327.83),
    "1000-500-500-s3": (-476.01, -495.79, -499.78, 520.61),
    "2000-500-500-s3": (-466.91, -492.96, -499.69, 238.35),
    "2000-300-300-300-s3": (-283.58, -296.90, -299.75, 469.02),
    "2000-1000-1000-s2": (-944.68, -989.77, -999.83, 207.37),
    "3000-1000-1000-s2": (-943.68, -989.65, -999.83, 81.96),
    "3000-2000-1000-s2": (-982.09, -996.68, -999.97, 662.55),
    "2000-500-500-500-s2": (-484.19, -497.30, -499.90, 144.28),
    "3000-500-500-500-s2": (-480.42, -496.66, -499.88, 137.56),
}

#: delta = scale * eps.
SCALE = {"linf": 127.5, "l2": 255.0}

COLUMNS = ("lp", "sdp-tight", "exact", "sdp", "auto")
SERIES = {"milp form=soft": "exact", "minp form=soft": "exact"}
RANDOM_COLUMNS = ("sdp-tight", "sdp-standard", "lp", "sdp")


def cell(count: Count) -> str:
    """Return robust images, counterexamples if there are any, and mean seconds."""
    found = f" / {count.not_robust}" if count.not_robust else ""
    return f"{count.robust}{found}, {count.mean_seconds:.2g} s"


def table(titles: Iterable[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    heads = list(titles)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def certified(found: list[Panel]) -> str:
    """Return the certified images of every network, norm and radius."""
    rows: dict[tuple[str, str, float], dict[str, Count]] = {}
    for panel in found:
        for count in counts(panel):
            delta = round(SCALE[panel.key.norm] * count.radius, 4)
            name = SERIES.get(count.series, count.series)
            rows.setdefault((panel.network.name, panel.key.norm, delta), {})[name] = count
    titles = ["network", "region", "asked", *COLUMNS, *(f"the paper's {c}" for c in COLUMNS[:3])]
    lines = []
    for (network, norm, delta), answers in rows.items():
        asked = max(c.instances - c.misclassified for c in answers.values())
        cells = [cell(answers[c]) if c in answers else "-" for c in COLUMNS]
        known = [text or "-" for text in PAPER.get((network, norm, delta), ("", "", ""))]
        lines.append([network, f"{norm} {delta:g}", str(asked), *cells, *known])
    return table(titles, lines)


def improvement(found: list[Panel]) -> str:
    """Return (bound - lp) / (upper - lp) of sdp-tight and sdp: mean over the images."""
    lines = []
    for panel in found:
        for gap in gaps(panel):
            delta, shares = round(SCALE[panel.key.norm] * gap.radius, 4), []
            for name in ("sdp-tight", "sdp"):
                both = zip(
                    gap.upper, gap.lower.get("lp", ()), gap.lower.get(name, ()), strict=False
                )
                kept = [
                    (bound - lp) / (upper - lp)
                    for upper, lp, bound in both
                    if upper is not None and lp is not None and bound is not None and upper > lp
                ]
                mean = f"{100 * sum(kept) / len(kept):.0f} % of {len(kept)}" if kept else "-"
                shares.append(mean)
            paper = PAPER_IMPROVEMENT.get(delta, "-") if panel.key.norm == "linf" else "-"
            if "sdp-tight" in gap.lower and "lp" in gap.lower:
                lines.append([panel.network.name, f"{panel.key.norm} {delta:g}", *shares, paper])
    titles = ["network", "region", "sdp-tight over lp", "sdp over lp", "the paper's sdp-tight"]
    return table(titles, lines)


def random_networks(found: list[Panel]) -> str:
    """Return bound and seconds of every method on the random networks."""
    lines = []
    for panel in found:
        cells: dict[str, str] = {}
        for name, row in panel.rows("bound"):
            if row.lower is not None:
                cells[name] = f"{row.lower:.0f}, {row.seconds:.2g} s"
        tight, standard, lp, seconds = PAPER_RANDOM[panel.network.name]
        ours = [cells.get(name, "-") for name in RANDOM_COLUMNS]
        lines.append(
            [panel.network.name, *ours, f"{tight}, {seconds:.0f} s", f"{standard}", f"{lp}"]
        )
    titles = ["network", *RANDOM_COLUMNS, *(f"the paper's {c}" for c in RANDOM_COLUMNS[:3])]
    return table(titles, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    found = panels(read_recorded(arguments.results))
    images = [p for p in found if p.key.norm in SCALE and p.key.rivals == "runner-up"]
    drawn = [p for p in found if p.network.name in PAPER_RANDOM]
    for part, made in ((images, certified), (images, improvement), (drawn, random_networks)):
        print(made(part) + "\n")


if __name__ == "__main__":
    main()
