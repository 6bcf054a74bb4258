"""A configuration file as plain values with their lines.

YAML and JSON give the same tree of plain values; a file cannot construct other objects.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_text
from bnncert.results.config.json_tree import read_json
from bnncert.results.config.source_tree import Node


def read_document(path: Path) -> Node:
    """Read a .yaml, .yml or .json file."""
    text = read_text(path, DEFAULT_LIMITS.configuration, "configuration")
    try:
        if path.suffix.lower() == ".json":
            return read_json(text, path)
        if importlib.util.find_spec("yaml") is None:
            raise MissingExtraError(
                f"{path}: reading YAML needs PyYAML: pip install 'bnncert[experiments]' (a .json "
                "file of the same layout needs nothing)"
            )
        from bnncert.results.config.yaml_tree import read_yaml

        return read_yaml(text, path)
    except RecursionError as error:
        raise FormatError(f"{path}: nested too deeply") from error
