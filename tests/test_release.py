"""A release: one version everywhere, a citation, a wheel tested with the Pythons of the PATH."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bnncert

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_that_states_the_version_states_the_same() -> None:
    assert f'\nversion = "{bnncert.__version__}"\n' in PROJECT
    assert f"\nversion: {bnncert.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == bnncert.__version__
    for page in ("README.md", "docs/install.md"):
        wheels = re.findall(r"bnncert-([\d.]+)-py3", (ROOT / page).read_text("utf-8"))
        assert set(wheels) == {bnncert.__version__}


def test_the_citation_names_the_paper() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    (paper,) = citation["references"]
    assert paper["year"] == 2025 and "ICLR" in paper["conference"]["name"]
    for page in ("README.md", "docs/experiments.md", "docs/benchmarks.md"):
        assert paper["title"] in (ROOT / page).read_text("utf-8")


def test_the_supported_pythons_begin_with_the_oldest_that_pip_accepts(release: ModuleType) -> None:
    versions = release.supported()
    assert f'requires-python = ">={versions[0]}"' in PROJECT
    assert versions == sorted(versions, key=lambda v: int(v.split(".")[1])) and len(versions) > 1
    assert f"Python {versions[0]} to {versions[-1]}" in (ROOT / "docs/install.md").read_text(
        "utf-8"
    )


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
def test_what_the_path_has_is_used_and_the_rest_is_named(
    release: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"none of python3\.98, python\S+ is on the PATH"):
        release.ends(["3.98", here])
    # A name may stand for a Python that is not there, or for another version.
    for version, command in (("3.98", "exit 127"), ("3.99", f'exec "{sys.executable}" "$@"')):
        (tmp_path / f"python{version}").write_text(f"#!/bin/sh\n{command}\n")
        (tmp_path / f"python{version}").chmod(0o755)
    (tmp_path / f"python{here}").symlink_to(sys.executable)
    assert release.ends(["3.98", here, "3.99"]) == [here]
    assert capsys.readouterr().out == "not on the PATH: python3.98, python3.99\n"
