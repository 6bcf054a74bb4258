"""Commands are imported when they run, so that the command line starts fast."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

from bnncert.commands.catalogue import ENTRIES, Entry
from tests.commands.diamond import environment

#: Libraries that take long to import.
HEAVY = {"numpy", "scipy", "onnx", "highspy", "clarabel", "rich"}

SCRIPT = """
import json, sys
from bnncert.__main__ import main
try:
    main()
except SystemExit:
    print(json.dumps(sorted(name for name in sys.modules if "." not in name)), file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Return the libraries that a call of the command line imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stderr))


def test_help_imports_no_library_that_takes_long() -> None:
    found = imported("--help")
    assert "typer" in found
    assert not found & HEAVY


def test_check_does_not_import_the_solvers() -> None:
    found = imported("check", "--help")
    assert "numpy" in found
    assert not found & {"onnx", "highspy", "clarabel"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_summary_is_the_docstring_of_the_command(entry: Entry) -> None:
    assert inspect.getdoc(entry.function) == entry.summary
