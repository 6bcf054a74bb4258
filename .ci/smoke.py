"""Test an installed bnncert as a user's first commands do; run it with the Python that has it.

The package must not come from the checkout: the commands run in an empty folder, and the place of
the imported package is compared with the environment of this Python.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

#: Files of the package that are not modules; the commands below do not open all of them.
DATA = (
    "py.typed",
    "data/mnist_dense.npz",
    "data/mnist_sparse.npz",
    "data/mnist_test_100.npz",
    "extras/experiments/paper-linf.yaml",
    "report/page/page.html",
)


def say(folder: Path, *arguments: str) -> str:
    """Run the installed program in a folder and return what it prints."""
    program = Path(sys.executable).parent / "bnncert"
    return subprocess.run(
        [program, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    """Run the commands; any unexpected output is an error."""
    import bnncert

    place = Path(bnncert.__file__).resolve()
    assert place.is_relative_to(Path(sys.prefix).resolve()), f"{place} is not in {sys.prefix}"
    missing = [name for name in DATA if not files("bnncert").joinpath(name).is_file()]
    assert not missing, f"not installed: {missing}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert say(folder, "--version").strip() == bnncert.__version__
        question = ("verify", "demo:sparse", "demo:1", "--radius", "0.5px")
        answer = say(folder, *question, "--certificate", "proof.bnncert")
        assert "robust in" in answer and "not robust" not in answer, answer
        checked = say(folder, "check", "proof.bnncert", "--model", "demo:sparse")
        assert checked.startswith("accepted: "), checked
        one = ("run", "demo:sparse", "--data", "demo", "--count", "1", "--radius", "0.25px")
        say(folder, *one, "--out", "run.sqlite")
        say(folder, "report", "run.sqlite", "-o", "run.html")
        assert "<html" in (folder / "run.html").read_text(encoding="utf-8")
    print(f"bnncert {bnncert.__version__}: installed and working")


if __name__ == "__main__":
    main()
