"""The progress bar of questions that are asked from Python."""

from __future__ import annotations

import io

from rich.console import Console

import bnncert


def said(*, is_terminal: bool) -> str:
    """Return what the bar of a short question writes."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, width=80)
    with bnncert.progress_bar(console) as progress:
        progress("class [3]", 1, 4)
        progress("certificate", 0, 0)
    return text.getvalue()


def test_a_terminal_shows_the_last_step() -> None:
    assert "certificate" in said(is_terminal=True)


def test_nothing_is_written_to_a_file() -> None:
    assert said(is_terminal=False) == ""
