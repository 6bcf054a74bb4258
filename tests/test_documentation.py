"""The pages of docs/: the API reference and the index leave nothing out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import bnncert
from bnncert.model.formats.images import read_image
from bnncert.model.loading import load_demo_images, load_demo_network

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


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/quick-start.md"])
def test_the_first_python_example_can_be_pasted(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    exec(compile(block, page, "exec"), {})
    assert "robust" in capsys.readouterr().out


def test_the_picture_of_the_readme_is_an_image_and_its_counterexample() -> None:
    assert "](docs/images/counterexample.png)" in (DOCS.parent / "README.md").read_text("utf-8")
    picture = read_image(DOCS / "images" / "counterexample.png")
    pixels = picture.pixels.reshape(picture.pixels.shape[:2])[::8, ::8].astype(int)
    network, images = load_demo_network("sparse"), load_demo_images()
    before, after, noisy = (pixels[:, k : k + 28].ravel() for k in (0, 29, 58))
    assert (before == images.pixels[38]).all() and (abs(after - before) <= 1).all()
    assert network.classify(after / 127.5 - 1.0).item() == 3
    assert abs(noisy - before).max() == 25
    assert load_demo_network("certified").classify(noisy / 127.5 - 1.0).item() == 2


def test_terms_are_explained_where_they_first_occur() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert text.index("The *margin* is") < text.index("## ") < text.index("--radius 0.5px")
    assert text.index("One *px* is") < text.index("## ")


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """The five lines about other verifiers repeat the table; a new run has to change both."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    table = (DOCS / "benchmarks.md").read_text(encoding="utf-8").split("<!-- peers")[1]
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    rows = {cells[0].strip("| "): [cell.strip() for cell in cells] for cells in lines}
    eev = [rows[name] for name in ("mnist-s-0.1", "mnist-s-0.3", "mnist-l-0.1", "cifar-s-2")]
    ours, theirs = sorted(r[3] for r in eev), sorted(r[10] for r in eev)
    assert (
        f"in {ours[0]} to {ours[-1]} s each in the mean (EEV: {theirs[0]} to {theirs[-1]} s)"
        in (readme)
    )
    assert f"with {sum(int(r[6].split()[0]) for r in eev)} checked certificates" in readme
    marabou, queries = rows["marabou"], rows["vnncomp"]
    assert f"**Marabou**: {marabou[2]} of {marabou[1]} questions" in readme
    assert f"in {float(marabou[3]):.2f} s each in the mean on one core" in readme
    assert f"Marabou decided {marabou[8]} in {float(marabou[10]):.0f} s each" in readme
    assert f"{queries[2]} of the {queries[1]} queries" in readme
    assert f"it decided {queries[8]} in 480 s" in readme


def test_links_have_titles_and_not_names_of_files_as_texts() -> None:
    for page in [*DOCS.glob("*.md"), *(DOCS.parent / n for n in ("README.md", "CHANGELOG.md"))]:
        texts = re.findall(r"\[([^\]\n]+)\]\([^)]+\)", page.read_text(encoding="utf-8"))
        assert [t for t in texts if re.search(r"\.(md|rst|ipynb)`?$", t)] == [], page.name


def test_the_glossary_is_two_sorted_lists() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    users, mathematics = (
        re.findall(r"^\| (?!term )([^|]+) \|", part, re.M)
        for part in text.split("## Words of the mathematics")
    )
    assert {"margin", "px", "rival", "tie"} <= set(users)
    assert {"lattice", "dual point"} <= set(mathematics)
    for words in (users, mathematics):
        assert words == sorted(words, key=str.lower)
    assert not set(users) & set(mathematics)


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
