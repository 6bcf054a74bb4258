"""Every question's answer has the same attributes, as fields or as properties."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields

import pytest

import bnncert.questions
from bnncert.engine.answer import Answer

NAMES = (
    *("status", "summary", "lower", "upper", "evidence", "notes"),
    *("certificate", "no_certificate", "seconds"),
)


def answers() -> list[type[Answer]]:
    for module in pkgutil.walk_packages(bnncert.questions.__path__, "bnncert.questions."):
        importlib.import_module(module.name)
    return sorted(Answer.__subclasses__(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", answers(), ids=lambda kind: kind.__name__)
def test_an_answer_has_all_attributes(kind: type[Answer]) -> None:
    known = {field.name for field in fields(kind)} | set(dir(kind))  # type: ignore[arg-type]
    assert [name for name in NAMES if name not in known] == []
    assert kind.HOLDS, "no status means that the property holds"


def test_there_is_an_answer_for_every_kind_of_question() -> None:
    assert len(answers()) == 8


@pytest.mark.parametrize("kind", answers(), ids=lambda kind: kind.__name__)
def test_an_answer_is_one_line(kind: type[Answer]) -> None:
    assert kind.__repr__ is Answer.__repr__, "@dataclass(repr=False)"
