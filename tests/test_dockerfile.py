"""The Dockerfile: a small image whose program does not run as root; .ci/run executes its steps."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "Dockerfile").read_text("utf-8")


@pytest.fixture(scope="module")
def steps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dockerfile", ROOT / ".ci" / "dockerfile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up the module of their annotations.
    sys.modules["dockerfile"] = module
    spec.loader.exec_module(module)
    return module


def test_the_image_is_slim_and_its_program_is_not_root(steps: ModuleType) -> None:
    found = steps.instructions(TEXT)
    assert all(re.match(r"python:3\.\d+-slim\b", rest) for word, rest in found if word == "FROM")
    (user,) = [rest for word, rest in found if word == "USER"]
    assert user.split(":")[0] not in ("root", "0")
    assert ("ENTRYPOINT", '["bnncert"]') in found


def test_what_is_copied_exists_and_is_not_ignored(steps: ModuleType) -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    copied = [rest.split()[:-1] for word, rest in steps.instructions(TEXT) if word == "COPY"]
    names = [name for part in copied if not part[0].startswith("--from=") for name in part]
    assert names
    for name in names:
        assert (ROOT / name).exists() and f"!{name}" in ignored


def test_the_extras_exist() -> None:
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", TEXT)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
        assert f"`{extra}`" in (ROOT / "docs" / "install.md").read_text("utf-8")


def test_steps_are_executed_in_the_folders_of_their_stage(
    steps: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps.subprocess, "run", lambda *arguments, **named: ran.append(named))
    ran: list[dict[str, object]] = []
    text = "FROM a AS first\nWORKDIR /x\nCOPY LICENSE y/\n# remark\nFROM b\nWORKDIR /z\n"
    text += "COPY --from=first /x/y .\nRUN --mount=type=cache,target=/c \\\n    true\nUSER 5\n"
    image = steps.build(text, tmp_path)
    assert (tmp_path / "first" / "x" / "y" / "LICENSE").exists()
    assert (image.root / "z" / "LICENSE").exists()
    assert ran[-1]["cwd"] == image.root / "z"
    assert image.user == "5"
    with pytest.raises(ValueError, match="ONBUILD"):
        steps.build("FROM a\nONBUILD x\n", tmp_path)
