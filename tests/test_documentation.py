"""The pages of docs/: the API reference and the index leave nothing out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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


def linked_files() -> list[tuple[Path, Path]]:
    """Return (page, file) for each relative link and image of README.md and docs/."""
    pages = [DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += sorted(DOCS.rglob("*.md"))
    found = []
    for page in pages:
        for target in re.findall(
            r"\]\(([^)\s#]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text("utf-8")
        ):
            link = target[0] or target[1]
            if not re.match(r"[a-z]+:", link):
                found.append((page, (page.parent / link).resolve()))
    return found


def test_every_link_and_image_is_in_git() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=DOCS.parent, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("needs a git checkout")
    tracked = {DOCS.parent / name for name in listing.stdout.split("\0") if name}
    folders = {parent for path in tracked for parent in path.parents}
    links = linked_files()
    assert len(links) > 20
    missing = [f"{p.name}: {t}" for p, t in links if t not in tracked and t not in folders]
    assert missing == []
