"""Commands are imported when they run, so that the command line starts fast."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import bnncert
from bnncert.cli.catalogue import ENTRIES, Entry
from tests.cli.diamond import DIAMOND, environment

#: Libraries that take long to import.
HEAVY = {"numpy", "scipy", "onnx", "highspy", "clarabel", "numba", "rich"}

SCRIPT = """
import json, sys
from bnncert.__main__ import main
try:
    main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments: str | Path, shown: str = "") -> set[str]:
    """Return the modules that a call of the command line imports; it prints `shown`."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert shown in done.stdout
    return set(json.loads(done.stderr))


def test_help_imports_no_library_that_takes_long() -> None:
    found = imported("--help")
    assert "typer" in found
    assert not found & HEAVY


#: The modules of commands, and those that several commands share.
COMMANDS = {f"bnncert.cli.{entry.module or entry.name}" for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_help_of_a_command_imports_its_module_and_no_library(entry: Entry) -> None:
    found = imported(entry.name.replace("_", "-"), "--help", shown="Usage: bnncert")
    # Some versions of typer convert values with pydantic; there is no value here.
    assert not found & (HEAVY | {"pydantic", "sqlite3", "multiprocessing"})
    assert found & COMMANDS == {f"bnncert.cli.{entry.module or entry.name}"}


def test_what_intervals_decide_is_answered_without_solvers() -> None:
    asked = ("verify", "demo:sparse", "demo:0", "--radius", "0.25px")
    found = imported(*asked, shown="robust in")
    assert {"numpy", "bnncert.engine.methods.auto"} <= found
    assert not found & {*(HEAVY - {"numpy", "rich"}), "flint", "multiprocessing", "PIL", "sqlite3"}
    assert "bnncert.engine.presolve.pipeline" not in found


def test_checking_a_robust_certificate_takes_no_library_but_numpy(tmp_path: Path) -> None:
    """Importing SciPy takes longer than the check of a small certificate."""
    model, proof = tmp_path / "net.npz", tmp_path / "proof.bnncert"
    network = DIAMOND.build()
    network.save(model)
    assert bnncert.verify(network, bnncert.Ball("linf", [1.0, 0.0], 0.25), 0, certificate=proof)
    asked = ("check", proof, "--model", model)
    found = imported(*asked, shown="accepted: for every input")
    assert "numpy" in found
    assert not found & (HEAVY - {"numpy"})


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_summary_is_the_docstring_of_the_command(entry: Entry) -> None:
    assert inspect.getdoc(entry.function) == entry.summary


def test_completing_the_name_of_a_command_imports_no_library_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {"_BNNCERT_COMPLETE": "complete_bash", "COMP_WORDS": "bnncert\nver", "COMP_CWORD": "1"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert not imported(shown="verify") & HEAVY
