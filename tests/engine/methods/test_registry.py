"""The table of methods, and what a missing package leads to."""

from __future__ import annotations

import io
from typing import ClassVar

import pytest
from rich.console import Console

from bnncert import InputError, Problem
from bnncert.engine.methods import REGISTRY, Context, Method
from bnncert.engine.methods.base import Promise, Registry
from bnncert.engine.verdict import TargetResult
from bnncert.errors import MissingExtraError
from bnncert.report import tables


class Oracle(Method):
    name = "oracle"
    summary = "knows"
    promises: ClassVar[tuple[Promise, ...]] = ("exact",)

    def run(self, problem: Problem, context: Context) -> tuple[TargetResult, ...]:
        return ()


class Faraway(Oracle):
    name = "faraway"
    package = "package_that_nobody_has"
    extra = "far"


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    assert registry.add(Oracle) is Oracle
    registry.add(Faraway)
    return registry


def shown(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tables, "REGISTRY", registry)
    stream = io.StringIO()
    Console(file=stream, width=200).print(tables.methods_table())
    return stream.getvalue().splitlines()


def test_the_documented_methods_are_registered() -> None:
    names = [method.name for method in REGISTRY.all()]
    assert {"interval", "lp", "milp", "sample", "attack", "auto"} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("method", REGISTRY.all(), ids=lambda m: m.name)
def test_every_method_says_what_it_does(method: type[Method]) -> None:
    assert method.summary and "\n" not in method.summary
    assert method.promises
    assert set(method.promises) <= {"bound", "exact", "counterexample"}
    # A package that may be missing comes with the extra that installs it.
    assert (method.package is None) or (method.extra is not None)
    if method.available():
        assert isinstance(REGISTRY.make(method.name), method)


def test_the_table_lists_each_method_with_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(REGISTRY, monkeypatch)
    for method in REGISTRY.all():
        (line,) = [line for line in lines if line.startswith(method.name + " ")]
        assert ", ".join(method.promises) in line
        assert method.regions in line


def test_the_table_tells_which_package_is_missing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, oracle, faraway = shown(registry, monkeypatch)
    assert header.split()[:3] == ["method", "promises", "regions"]
    assert "not installed" not in oracle
    assert "package_that_nobody_has (not installed)" in faraway


def test_methods_keep_the_order_of_registration(registry: Registry) -> None:
    assert registry.all() == (Oracle, Faraway)


def test_a_missing_package_names_its_extra(registry: Registry) -> None:
    assert Faraway.available() is False
    with pytest.raises(MissingExtraError) as caught:
        registry.make("faraway")
    message = str(caught.value)
    assert "package_that_nobody_has" in message
    assert "pip install 'bnncert[far]'" in message
    assert "\n" not in message


def test_an_unknown_name_lists_the_known_ones(registry: Registry) -> None:
    assert isinstance(registry.make("oracle"), Oracle)
    with pytest.raises(InputError, match=r"'magic'.*oracle, faraway"):
        registry.make("magic")
