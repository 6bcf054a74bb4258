"""The tables of explanations, weight faults and counts: cells that all of them have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from bnncert.report.page.links import certificate_link
from bnncert.results.rows import Kind, OtherAnswer
from bnncert.results.store import Recorded


def section_id(kind: Kind) -> str:
    """Return the name of the section of one kind of answers in addresses."""
    return f"kind-{kind}"


def section(kind: Kind, title: str, text: str, content: str) -> str:
    """Return the section of one kind of answers; `text` says how to read it."""
    name = section_id(kind)
    return (
        f'<section class="panel others" aria-labelledby="{name}"><h2 id="{name}" tabindex="-1">'
        f"{escape(title)}</h2><p class=sub>{escape(text)}</p>{content}</section>"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str]) -> str:
    """Return a table of cells that are HTML; the columns `numbers` are aligned to the right."""
    styles = [" class=n" if head in numbers else "" for head in heads]
    head = "".join(
        f"<th scope=col{style}>{escape(text)}</th>"
        for text, style in zip(heads, styles, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(
            f"<td{style}>{cell}</td>" for cell, style in zip(rest, styles[1:], strict=True)
        )
        lines.append(f"<tr><th scope=row>{first}</th>{cells}</tr>")
    return (
        f"<div class=wide><table class=other><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


class AnswerCells:
    """The cells about the question, the time and the certificate of the answers of one section.

    The network has a column only if the answers are about several ones.
    """

    def __init__(self, recorded: Recorded, page: Path, answers: Iterable[OtherAnswer]) -> None:
        self._recorded, self._page = recorded, page
        self._several = len({answer.model_hash for answer in answers}) > 1

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of :meth:`question`."""
        return ("input", *(("network",) if self._several else ()), "label", "region")

    def question(self, answer: OtherAnswer) -> tuple[str, ...]:
        """Return the input, without its folders, the network, the label and the region."""
        # Pages are shared with others, who should not see the folders of a machine.
        name = answer.input_name.replace("\\", "/").rpartition("/")[2]
        network = self._recorded.network(answer.model_hash).name
        cells = (name, *((network,) if self._several else ()), str(answer.label), answer.region)
        return tuple(escape(cell) for cell in cells)

    def certificate(self, answer: OtherAnswer) -> str:
        """Return a link to the certificate, or a dash."""
        if answer.certificate is None:
            return "-"
        link = certificate_link(answer.certificate, self._recorded.path, self._page)
        if not link["there"]:
            return f"{escape(link['name'])} (was not there when the page was made)"
        return f'<a href="{escape(link["href"])}">{escape(link["name"])}</a>'
