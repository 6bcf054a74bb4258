"""The page of all commands, which docs/conf.py makes from the command line."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from bnncert.cli.catalogue import ENTRIES
from bnncert.cli.program import _imported

DOCS = Path(__file__).resolve().parent.parent / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "command_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_command_and_option() -> None:
    parts = re.split(r"^### bnncert (\S+)$", generator().reference(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    shown = [entry for entry in ENTRIES if not entry.hidden]
    assert sorted(sections) == sorted(entry.name for entry in shown)
    for entry in shown:
        text = sections[entry.name]
        assert entry.summary in text and entry.example in text
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        parameters = [p for p in _imported(entry.name).params if not getattr(p, "hidden", False)]
        # The option --help is not among the parameters.
        assert len(rows) == len(parameters) + 1
        for parameter in parameters:
            if parameter.param_type_name == "option":
                name = re.escape(parameter.opts[-1])
                assert any(re.match(rf"\| `[^`]*{name}\b", row) for row in rows), name


def test_rows_have_two_cells() -> None:
    for line in generator().reference().splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 3, line


def test_the_page_has_a_place_for_the_reference() -> None:
    assert (DOCS / "commands.md").read_text("utf-8").count(generator().PLACE) == 1
