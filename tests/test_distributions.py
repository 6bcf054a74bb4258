"""The wheel has the package with its data only; the source distribution has all the rest."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import bnncert

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "bnncert"


def build(kind: str, folder: Path) -> Path:
    """Build a distribution of this checkout as `make wheel` does, and return its file."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (file,) = folder.iterdir()
    return file


def package_files() -> set[str]:
    """Return the files of the package in this checkout, without what Python compiles."""
    found = [p for p in SOURCE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return {p.relative_to(SOURCE.parent).as_posix() for p in found}


def test_the_wheel_has_the_package_and_its_data(tmp_path: Path) -> None:
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        (entry_points,) = [n for n in names if n.endswith("entry_points.txt")]
        assert "bnncert = bnncert.__main__:main" in wheel.read(entry_points).decode()
    information = f"bnncert-{bnncert.__version__}.dist-info"
    assert {PurePosixPath(name).parts[0] for name in names} == {"bnncert", information}
    inside = {name for name in names if name.startswith("bnncert/")}
    assert inside == package_files()
    assert {n for n in inside if n.startswith("bnncert/data/") and n.endswith(".npz")} == {
        f"bnncert/data/mnist_{name}.npz" for name in ("certified", "dense", "sparse", "test_100")
    }
    assert f"{information}/licenses/LICENSE" in names


def test_the_source_distribution_can_be_built_and_tested(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        top = f"bnncert-{bnncert.__version__}/"
        names = {name.removeprefix(top) for name in archive.getnames() if name.startswith(top)}
    assert {f"src/{name}" for name in package_files()} <= names
    tests = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.py")}
    assert tests <= names
    assert {"pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE", "Makefile"} <= names
    assert {"CITATION.cff", "CHANGELOG.md"} <= names
    # Environments, builds and results are left out.
    assert not [n for n in names if n.startswith((".venv", "build", "dist")) or ".sqlite" in n[-7:]]
