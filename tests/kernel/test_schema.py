"""The published schema describes what certificates really contain.

`jsonschema` checks it where it is installed; everywhere else the small validator below does, which
refuses keywords that it does not know instead of passing over them.
"""

from __future__ import annotations

import copy
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from bnncert.kernel.container import MAGIC
from tests.kernel.claims import pack
from tests.kernel.conftest import Valid

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}

IGNORED = {"$schema", "$defs", "title", "description"}


def fits(value: Any, schema: Any) -> bool:
    """Whether a value is valid; KeyError for a keyword that this validator does not know."""
    if isinstance(schema, bool):
        return schema
    return all(_rule(value, k, v, schema) for k, v in schema.items() if k not in IGNORED)


def _rule(value: Any, keyword: str, rule: Any, schema: dict[str, Any]) -> bool:
    is_object, is_list, is_text = (isinstance(value, t) for t in (dict, list, str))
    if keyword == "$ref":
        return fits(value, SCHEMA["$defs"][rule.removeprefix("#/$defs/")])
    if keyword == "type":
        return isinstance(value, TYPES[rule]) and (rule != "integer" or not isinstance(value, bool))
    if keyword == "oneOf":
        return sum(fits(value, one) for one in rule) == 1
    if keyword in ("const", "enum"):
        return value in (rule if keyword == "enum" else [rule])
    if keyword == "minimum":
        return bool(value >= rule)
    if keyword == "maxLength":
        return not is_text or len(value) <= rule
    if keyword == "pattern":
        return not is_text or re.search(rule, value) is not None
    if keyword == "required":
        return not is_object or all(k in value for k in rule)
    if keyword == "properties":
        return not is_object or all(fits(value[k], s) for k, s in rule.items() if k in value)
    if keyword == "additionalProperties":
        known = schema.get("properties", {})
        return not is_object or all(fits(v, rule) for k, v in value.items() if k not in known)
    if keyword == "propertyNames":
        return not is_object or all(fits(k, rule) for k in value)
    if keyword == "maxProperties":
        return not is_object or len(value) <= rule
    if keyword == "minItems":
        return not is_list or len(value) >= rule
    if keyword == "uniqueItems":
        return not is_list or len({json.dumps(v) for v in value}) == len(value)
    if keyword == "prefixItems":
        return not is_list or all(fits(v, s) for v, s in zip(value, rule, strict=False))
    if keyword == "items":
        start = len(schema.get("prefixItems", []))
        return not is_list or all(fits(v, rule) for v in value[start:])
    raise KeyError(keyword)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of JSON of a file, read without the checker's code."""
    data, out = path.read_bytes(), []
    place = len(MAGIC)
    while place < len(data):
        stored = int.from_bytes(data[place + 4 : place + 8], "little")
        raw = zlib.decompress(data[place + 8 : place + 8 + stored])
        out.append(json.loads(raw.split(b"\n", 1)[0]))
        place += 8 + stored
    return out


def test_real_certificates_fit(valid: dict[str, Valid], tmp_path: Path) -> None:
    seen: set[str] = set()
    for one in valid.values():
        for fields in lines(pack(tmp_path / "one.cert", one.sections)):
            assert fits(fields, SCHEMA), fields
            seen.add(fields["section"])
    proofs = {"clashes", "clauses", "branched", "target", "cuts", "nodes", "patterns", "tree"}
    proofs |= {"elimination", "buckets", "refutation", "lemmas"}
    assert seen == {"statement", *proofs, "point", "end"}


def test_changes_do_not_fit(valid: dict[str, Valid], tmp_path: Path) -> None:
    for one in valid.values():
        for fields in lines(pack(tmp_path / "one.cert", one.sections)):
            for key in fields:
                if key in ("sizes", "sign_zero", "exact"):
                    continue
                less = {k: v for k, v in fields.items() if k != key}
                # Without these a claim is about another region.
                assert key in ("grid", "within") or not fits(less, SCHEMA), (key, fields)
                other = copy.deepcopy(fields) | {key: {"no": "such thing"}}
                assert not fits(other, SCHEMA), (key, fields)
            assert not fits({**fields, "more": 1}, SCHEMA)


def test_with_jsonschema(valid: dict[str, Valid], tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for one in valid.values():
        for fields in lines(pack(tmp_path / "one.cert", one.sections)):
            validator.validate(fields)
            assert not validator.is_valid({**fields, "more": 1})


def test_unknown_keywords_are_noticed() -> None:
    with pytest.raises(KeyError):
        fits({}, {"dependentRequired": {}})
