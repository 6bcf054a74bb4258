"""What README.md and docs/ show in console blocks is what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console_blocks import BLOCK, agrees, difference, folder, masked, pages, run, steps


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_commands_print_what_the_page_shows(page: Path) -> None:
    count = 0
    with folder():
        for block in BLOCK.findall(page.read_text("utf-8")):
            for step in steps(block):
                printed = run(step.words)
                same = agrees(step.shown, printed, by_auto=step.by_auto)
                assert same, difference(step, printed)
                count += 1
    assert count


def test_the_first_page_has_console_blocks() -> None:
    assert "README.md" in [page.name for page in pages()]


def test_times_are_masked_and_bounds_are_not() -> None:
    table = ["target   lower bound  seconds  decided by", "class 0        68.29     0.05  sdp"]
    slower = [table[0], "class 0        68.29     12.5  sdp"]
    other = [table[0], "class 0        72.29     0.05  sdp"]
    assert masked(table) == masked(slower)
    assert masked(table) != masked(other)
    assert agrees(["robust in 0.33 s, margin at least 5.9"], ["robust in 7 s, margin at least 5.9"])
    assert not agrees(
        ["robust in 0.3 s, margin at least 5.9"], ["robust in 7 s, margin at least 6"]
    )
    # Which engine of `auto` is the first depends on the clock; the answer does not.
    assert masked(table, by_auto=True) == masked(other, by_auto=True)
    assert not agrees(["robust in 3 s"], ["unknown after 3 s"], by_auto=True)


def test_an_elision_stands_for_any_number_of_lines() -> None:
    assert agrees(["first", "...", "last"], ["first", "last"])
    assert agrees(["first", "...", "last"], ["first", "a", "b", "last"])
    assert not agrees(["first", "...", "last"], ["first", "a", "b"])
