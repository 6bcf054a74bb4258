"""YAML as a tree with lines; the tree is composed, and no Python objects are constructed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from bnncert.results.config.source_tree import Node, complaint

#: Numbers that are text in YAML 1.1, such as 1e-3.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")

#: Greatest depth of nested lists and mappings; a configuration has five levels.
MOST_NESTED = 50

_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


def read_yaml(text: str, path: Path) -> Node:
    """Read one YAML document."""
    try:
        events: Any = yaml.parse(text, Loader=yaml.SafeLoader)
        depth = 0
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_NESTED:
                # PyYAML's time grows with the square of the depth.
                raise complaint(path, event.start_mark.line + 1, "nested too deeply")
            if isinstance(event, yaml.AliasEvent):
                # A few lines of aliases can expand to more values than fit into memory.
                raise complaint(path, event.start_mark.line + 1, "an alias (*); write it out")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is None or mark.index >= len(text.rstrip()):
            # A list or mapping that is not closed: its start is the useful place.
            mark = error.context_mark or mark
        line = 1 if mark is None else mark.line + 1
        raise complaint(path, line, f"not YAML: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise complaint(path, line, f"not YAML: {error.reason}") from error
    if root is None:
        raise complaint(path, 1, "the file is empty")
    return _tree(root, path)


def _tree(node: Any, path: Path) -> Node:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return Node([_tree(item, path) for item in node.value], line)
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, key_line = _scalar(key_node, path), key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise complaint(path, key_line, "a key that is not text")
            if key in values:
                raise complaint(path, key_line, f"key {key!r} again; first in line {lines[key]}")
            values[key], lines[key] = _tree(value_node, path), key_line
        return Node(values, line, lines)
    return Node(_scalar(node, path), line)


def _scalar(node: Any, path: Path) -> bool | int | float | str | None:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise complaint(path, line, f"a value of type {tag}; expected text or a number")
    if node.tag.endswith(":str") and node.style is None and _EXPONENT.fullmatch(node.value):
        return float(node.value)
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, KeyError) as error:
        raise complaint(path, line, f"{node.value!r} is not a value") from error
    assert value is None or isinstance(value, (bool, int, float, str))
    return value
