"""The published schema describes what certificates really contain."""

from __future__ import annotations

import copy
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from bnncert.kernel.container import MAGIC
from tests.kernel.claims import pack
from tests.kernel.conftest import Valid

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())

jsonschema = pytest.importorskip("jsonschema", reason="the schema is that of JSON Schema 2020-12")

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


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
            assert VALIDATOR.is_valid(fields), fields
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
                assert key in ("grid", "within") or not VALIDATOR.is_valid(less), (key, fields)
                other = copy.deepcopy(fields) | {key: {"no": "such thing"}}
                assert not VALIDATOR.is_valid(other), (key, fields)
            assert not VALIDATOR.is_valid({**fields, "more": 1})


def keywords(schema: Any) -> set[str]:
    """Return the keywords of a schema and of those inside it."""
    if not isinstance(schema, dict):
        return set()
    inner = [*schema.get("oneOf", ()), *schema.get("prefixItems", ())]
    inner += [s for name in ("properties", "$defs") for s in schema.get(name, {}).values()]
    inner += [schema.get(name) for name in ("items", "additionalProperties", "propertyNames")]
    return {*schema, *(word for one in inner for word in keywords(one))}


def test_the_schema_is_one_without_unknown_keywords() -> None:
    VALIDATOR.check_schema(SCHEMA)
    known = {*VALIDATOR.VALIDATORS, "$schema", "$defs", "title", "description"}
    assert "prefixItems" in keywords(SCHEMA) <= known
