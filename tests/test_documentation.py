"""The pages of docs/: the API reference and the index leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import bnncert

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_reference_has_every_public_name() -> None:
    text = (DOCS / "api.rst").read_text(encoding="utf-8")
    entries = re.findall(r"^\.\. (?:auto)?(?:class|data|exception|function):: (\S+)$", text, re.M)
    public = {f"bnncert.{name}" for name in bnncert.__all__}
    assert public <= set(entries)
    assert len(entries) == len(set(entries))


def test_the_index_lists_and_links_every_page() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.M | re.S)
    listed = [line for block in blocks for line in block.split() if line]
    for page in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]:
        if page.stem != "index":
            assert page.stem in listed
            assert f"]({page.name})" in text
