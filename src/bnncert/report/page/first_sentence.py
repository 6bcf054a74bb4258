"""The first sentence of a page: what was found, for a reader who knows none of its terms."""

from __future__ import annotations

from collections.abc import Sequence

from bnncert.regions.pictures import pixel_inputs
from bnncert.regions.radii import SHAPES
from bnncert.report.statistics import Panel, Together, together

#: More radii are not listed; the last one of a longer list is.
MOST_RADII = 4

#: More panels have no sentences of their own, because nobody would read so many.
MOST_SENTENCES = 4


def first_sentences(known: Sequence[Panel]) -> list[str]:
    """Say of each panel how many inputs are proved, can be changed, and are open.

    If there are several panels, a sentence begins with the name of its own.
    """
    if len(known) == 1:
        return [_sentence(known[0])]
    return [f"{panel.name}: {_lowered(_sentence(panel))}" for panel in known[:MOST_SENTENCES]]


def _sentence(panel: Panel) -> str:
    lines = together(panel)
    # Radii that were asked about other inputs cannot share the number of inputs.
    lines = [one for one in lines if one.count.instances == lines[0].count.instances]
    if len(lines) > MOST_RADII:
        lines = [*lines[: MOST_RADII - 1], lines[-1]]
    first, last = lines[0].count, lines[-1].count
    noun = "image" if pixel_inputs(panel.network.input_shape) is not None else "input"
    aim = "class" if panel.key.rivals == "all" else f"lead over {panel.rival_names}"
    whose = "its" if first.robust == 1 else "their"
    text = (
        f"Of {_number(first.instances, noun)}, {first.robust} {_are(first.robust)} proved to keep "
        f"{whose} {aim} {_within(panel, lines[0])}"
    )
    more = [f"{one.count.robust} {_within(panel, one)}" for one in lines[1:]]
    rest = [f"{last.not_robust} can be changed"]
    rest.append(f"{last.undecided} {_are(last.undecided)} undecided")
    if last.misclassified:
        rest.append(f"{last.misclassified} {_are(last.misclassified)} misclassified already")
    if not more:
        return f"{text}, {', '.join(rest)}."
    return f"{_listed([text, *more])}; {_within(panel, lines[-1])}, {_listed(rest)}."


def _within(panel: Panel, one: Together) -> str:
    """Name the change that a radius allows."""
    norm, radius = panel.key.norm, panel.radius_text(one.count.radius)
    if norm == "l0":
        return f"if at most {radius} change{'s' if one.count.radius == 1 else ''}"
    if norm in SHAPES:
        return f"under {norm} up to {radius}"
    return f"within {radius}" + ("" if norm == "linf" else f" ({panel.norm_name})")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + f" and {texts[-1]}" if len(texts) > 1 else texts[0]


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
