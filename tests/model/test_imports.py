"""Packages that take long to import are loaded by the functions that need them."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("scipy", "onnx", "h5py", "highspy", "yaml")


@pytest.mark.parametrize("module", ["bnncert", "bnncert.model"])
def test_importing_a_module_does_not_load_slow_packages(module: str) -> None:
    code = f"import sys, {module}; print([n for n in {SLOW!r} if n in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "[]"
