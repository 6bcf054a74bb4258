"""Images as text."""

from __future__ import annotations

import numpy as np
import pytest
from rich.text import Text

from bnncert.report.picture import RAMP, picture_lines, side_by_side


def test_without_colour_every_pixel_is_two_characters_from_dark_to_light() -> None:
    image = np.array([[-1.0, 1.0], [0.0, -1.0]])
    lines = [line.plain for line in picture_lines(image, -1.0, 1.0, colour=False)]
    middle = RAMP[4]
    assert lines == ["  @@", middle * 2 + "  "]


def test_lighter_pixels_never_get_a_darker_character() -> None:
    image = np.linspace(0.0, 1.0, 256)[None, :]
    (line,) = picture_lines(image, 0.0, 1.0, colour=False)
    shades = [RAMP.index(c) for c in line.plain]
    assert shades == sorted(shades)
    assert set(shades) == set(range(len(RAMP)))


def test_values_beyond_the_range_are_clipped() -> None:
    image = np.array([[-5.0, 5.0]])
    (line,) = picture_lines(image, 0.0, 1.0, colour=False)
    assert line.plain == RAMP[0] * 2 + RAMP[-1] * 2


def test_an_image_of_one_value_is_drawn() -> None:
    (line,) = picture_lines(np.array([[3.0, 3.0]]), 3.0, 3.0, colour=False)
    assert line.plain == RAMP[0] * 4


def test_with_colour_one_line_shows_two_rows() -> None:
    image = np.array([[0.0, 255.0], [51.0, 102.0]])
    (line,) = picture_lines(image, 0.0, 255.0, colour=True)
    assert line.plain == "▀▀"
    assert [str(span.style) for span in line.spans] == [
        "rgb(0,0,0) on rgb(51,51,51)",
        "rgb(255,255,255) on rgb(102,102,102)",
    ]


def test_with_colour_an_odd_last_row_gets_a_black_one_below() -> None:
    lines = picture_lines(np.full((3, 1), 255.0), 0.0, 255.0, colour=True)
    assert len(lines) == 2
    assert str(lines[1].spans[0].style) == "rgb(255,255,255) on rgb(0,0,0)"


@pytest.mark.parametrize("gap", [1, 4])
def test_pictures_stand_side_by_side_under_their_titles(gap: int) -> None:
    left, right = [Text("ab"), Text("cd")], [Text("x")]
    rows = [row.plain for row in side_by_side([("one", left), ("a title", right)], gap)]
    space = " " * gap
    assert rows == [
        f"one{space}a title{space}",
        f"ab {space}x      {space}",
        f"cd {space}       {space}",
    ]
