"""Tables as text and HTML."""

from __future__ import annotations

from bnncert.model.text_table import TextTable

TABLE = TextTable("title", ["name", "n"], [["a", "1"], ["<b>", "12"]], ["end"])


def test_columns_are_aligned() -> None:
    assert str(TABLE).splitlines() == ["title", "  name   n", "  a      1", "  <b>   12", "end"]


def test_html_is_escaped() -> None:
    page = TABLE.html()
    assert "&lt;b&gt;" in page and "<b>title</b>" in page
    assert page.count("<tr>") == 3


def test_a_table_without_rows_has_its_heads() -> None:
    assert str(TextTable("title", ["name"], [])) == "title\n  name"
