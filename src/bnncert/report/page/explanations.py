"""The section of explanations: each image with its kept inputs marked."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from bnncert.regions.pictures import as_image, marked, shades
from bnncert.report.other_answers import ShownExplanation, shown_explanations
from bnncert.report.page.other_tables import AnswerCells, section, table
from bnncert.report.page.thumbnails import Album
from bnncert.results.rows import InputRecord
from bnncert.results.store import Recorded

#: The most characters of base64 for the pictures of explanations.
PICTURE_LIMIT = 3_000_000

TEXT = (
    "With the kept inputs as in the image, no values of the other inputs in the region change the "
    "class. Kept inputs are orange in the picture. A set is minimal if each of its members is "
    "shown to be needed; open members are not."
)


def explanation_section(recorded: Recorded, page: Path) -> str:
    """Return the section, or nothing if the file has no explanation."""
    found = shown_explanations(recorded)
    if not found:
        return ""
    cells = AnswerCells(recorded, page, (one.answer for one in found))
    points = recorded.inputs({one.answer.input_hash for one in found})
    album = Album(PICTURE_LIMIT)
    heads = (*cells.heads, "kept inputs", "inputs kept", "set", "seconds", "certificate")
    rows = [
        (
            *cells.question(one.answer),
            _picture(recorded, one, points.get(one.answer.input_hash), album),
            escape(one.kept_text),
            escape(one.minimal_text),
            f"{one.answer.seconds:.2f}",
            cells.certificate(one.answer),
        )
        for one in found
    ]
    content = table(heads, rows, ("label", "inputs kept", "seconds"))
    return section("explain", "Explanations", TEXT, content)


def _picture(
    recorded: Recorded, one: ShownExplanation, stored: InputRecord | None, album: Album
) -> str:
    """Return the image with its kept inputs marked, or their numbers if it is not a picture."""
    numbers = ", ".join(map(str, one.kept[:20])) + (", ..." if len(one.kept) > 20 else "")
    if stored is None or stored.point.size != one.inputs:
        return escape(numbers or "none")
    network = recorded.network(one.answer.model_hash)
    shapes = (network.input_shape, stored.shape)
    chosen = np.zeros(one.inputs)
    chosen[list(one.kept)] = 1
    image, kept = as_image(stored.point, *shapes), as_image(chosen, *shapes)
    if image is None or kept is None:
        return escape(numbers or "none")
    lo, hi = network.input_lo, network.input_hi
    if lo is None or hi is None:
        lo, hi = float(image.min()), float(image.max())
    number = album.add(marked(shades(image, lo, hi), kept > 0))
    if number is None:
        return "not in this page"
    words = f"{one.answer.input_name.rpartition('/')[2]} with {len(one.kept)} kept inputs marked"
    return (
        f'<img class=kept src="data:image/png;base64,{album.pictures[number]}" '
        f'alt="{escape(words)}">'
    )
