"""tests/first_five_minutes.sh, which a new user could type, with the environment of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "first_five_minutes.sh"


def borrowed_environment(folder: Path) -> Path:
    """Return an environment for `make` in which everything is installed already."""
    folder.mkdir()
    (folder / "bin").symlink_to(Path(sys.executable).parent)
    (folder / "core").touch()
    # `make` installs if pyproject.toml, which is cloned later, is newer.
    os.utime(folder / "core", (2**32, 2**32))
    return folder


def test_the_first_five_minutes(tmp_path: Path) -> None:
    for program in ("git", "make", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    if not (ROOT / ".git").exists() or not (Path(sys.executable).parent / "bnncert").exists():
        pytest.skip("needs a git checkout, and bnncert installed beside this Python")
    clone = tmp_path / "bnncert"
    settings = {
        **os.environ,
        "VENV": str(borrowed_environment(tmp_path / "venv")),
        # The same files as in the clone, but compiled already.
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path), str(ROOT)],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    assert "9 robust, 0 not robust, 1 misclassified" in printed
    assert "own.png: label 7" in printed
    assert printed.index("\nrobust in ") < printed.index("\naccepted: for every input")
    assert "\nnot robust in " in printed
    assert "20 instances in results.sqlite" in printed
    picture = (clone / "counterexample.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    page = (clone / "report.html").read_text("utf-8")
    assert "mnist_sparse" in page and "</html>" in page
