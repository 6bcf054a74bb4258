"""The results of VNN-COMP categories as one HTML file that needs no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bnncert.report.simple_page import simple_page, simple_table
from bnncert.report.vnncomp_tables import WORDS, Line, totals


def competition_page(lines: Sequence[Line], name: str, title: str | None = None) -> str:
    """Return the page: the answers of each category, then every instance.

    `name` is the name of the file, and `title` replaces the title of the page.
    """
    categories = list(dict.fromkeys(line.category for line in lines))
    groups = [[line for line in lines if line.category == one] for one in categories]
    heads = ("category", "instances", *WORDS, "seconds", "slowest", "with certificate")
    counts = [
        (
            one,
            str(len(group)),
            *(str(sum(line.word == word for line in group)) for word in WORDS),
            f"{math.fsum(line.seconds for line in group):.1f}",
            f"{max(line.seconds for line in group):.2f}",
            str(sum(bool(line.certificate) for line in group)),
        )
        for one, group in zip(categories, groups, strict=True)
    ]
    body = f"<p>{escape(totals(lines))} ({escape(name)})</p>"
    body += simple_table("Categories", heads, counts)
    for one, group in zip(categories, groups, strict=True):
        body += simple_table(one, _HEADS, [_cells(line) for line in group])
    heading = title or f"VNN-COMP: {', '.join(categories)}"
    return simple_page(heading, heading, body)


_HEADS = (
    *("network", "query", "answer", "seconds", "limit", "decided by", "replayed in"),
    *("certificate", "GB", "reason"),
)


def _cells(line: Line) -> tuple[str, ...]:
    # Names without folders, because pages are shared with others.
    network = line.onnx.replace("\\", "/").rpartition("/")[2]
    return (
        *(network, line.query_name, line.word, f"{line.seconds:.2f}", f"{line.limit:g}"),
        *(line.stage or "-", line.replayed or "-"),
        f"{line.certificate} bytes" if line.certificate else "-",
        f"{line.memory / 1e9:.2f}" if line.memory else "-",
        line.reason,
    )
