"""`help` of the public names describes everything, and its examples print what they show."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.problem import robustness

#: What experts import from its module.
OF_MODULES = {
    "engine.methods": ["Method"],
    "engine.verdict": ["Result", "TargetResult"],
    "extras.training.train": ["TrainedNetwork"],
    "model.layers": ["OutputLayer", "ThresholdLayer"],
    "problem": ["Target", "from_vnnlib", "output_polytope", "robustness", "score_objective"],
    "questions.compare.comparison_answer": ["NetworkComparison"],
    "questions.count.count_answer": ["CountResult"],
    "questions.explain.explanation_answer": ["Explanation"],
    "questions.faults.faults_answer": ["FaultsResult"],
    "questions.polynomial_bound": ["PolynomialBound", "last_sign", "network_input", "score"],
    "questions.radius.radius_answer": ["RadiusResult", "SmallestResult"],
    "questions.relations.relation_answer": ["RelationResult"],
    "questions.prover": ["solve"],
    "report.overview": ["ResultsOverview"],
}
DESCRIBED = {name: getattr(bnncert, name) for name in bnncert.__all__} | {
    name: getattr(importlib.import_module(f"bnncert.{module}"), name)
    for module, names in OF_MODULES.items()
    for name in names
}
FUNCTIONS = {name: v for name, v in DESCRIBED.items() if inspect.isfunction(v)}
DATA = {
    name: v
    for name, v in DESCRIBED.items()
    if dataclasses.is_dataclass(v) or name in ("Ball", "Box", "L0Ball", "Polytope")
}


def test_there_are_few_public_names_and_dir_shows_no_others() -> None:
    assert dir(bnncert) == sorted(bnncert.__all__)
    assert len(dir(bnncert)) <= 45


def sections(thing: Any) -> dict[str, str]:
    """Return the sections of a NumPy docstring by title; what precedes them has the title ""."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(section: str) -> list[str]:
    """Return the names that a section describes, each with a text below it."""
    names: list[str] = []
    for heads in re.findall(r"^(\S.*)\n(?= +\S)", section, flags=re.MULTILINE):
        names += [name.strip() for name in heads.split(" : ")[0].split(",")]
    return names


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_describe_parameters_results_and_errors(name: str) -> None:
    function = FUNCTIONS[name]
    told = sections(function)
    assert sorted(described(told["Parameters"])) == sorted(inspect.signature(function).parameters)
    assert described(told["Returns"])
    assert ">>>" in told["Examples"]
    if "raise " in inspect.getsource(function):
        assert described(told["Raises"])


@pytest.mark.parametrize("name", DATA)
def test_classes_describe_what_they_are_made_of(name: str) -> None:
    made = DATA[name]
    if dataclasses.is_dataclass(made):
        names, title = [field.name for field in dataclasses.fields(made)], "Attributes"
    else:
        names, title = list(inspect.signature(made).parameters), "Parameters"
    assert sorted(described(sections(made)[title])) == sorted(names)


def test_the_reader_of_sections_finds_missing_names() -> None:
    def documented(a: int, b: int) -> None:
        """Do it.

        Parameters
        ----------
        a
            The first.
        b, c : int
            Others.
        """

    assert described(sections(documented)["Parameters"]) == ["a", "b", "c"]


def examples(thing: Any, name: str) -> list[doctest.DocTest]:
    """Return the examples in the docstring of one object and of what it defines."""
    found = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", [*FUNCTIONS, *DATA, "bnncert"])
def test_examples_print_what_they_show(name: str) -> None:
    if name in ("from_torch", "train"):
        pytest.importorskip("torch")
    thing = bnncert if name == "bnncert" else FUNCTIONS.get(name) or DATA[name]
    for test in examples(thing, name):
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test, out=said.append).failed == 0, "".join(said)


def test_every_function_has_examples_that_run() -> None:
    for name, function in FUNCTIONS.items():
        found = [e for test in examples(function, name) for e in test.examples]
        assert found and not any(e.options.get(doctest.SKIP) for e in found)


def small() -> list[Any]:
    """Return objects of a large network whose `repr` is one short line."""
    network, images = load_demo_network(), load_demo_images()
    ball = bnncert.Ball("linf", images.point(38), 1 / 127.5, -1, 1, bnncert.Grid(1 / 127.5, -1))
    problem = robustness(network, ball, 2)
    result = bnncert.verify(network, ball, 2, method="attack", timeout=30)
    assert result.counterexample is not None
    smallest = bnncert.smallest(network, ball, 2, method="attack", maximum=0.02, timeout=5)
    radius = bnncert.radius(network, ball.with_radius(0), 2, maximum=0.01, timeout=2)
    parts = [network, network.layers[0], network.output, ball, problem, problem.targets[0]]
    parts += [problem.targets[0].objectives[0], result, result.targets[0], result.counterexample]
    return [*parts, smallest, radius, bnncert.L0Ball(np.zeros(784), 3, -1, 1)]


def test_objects_of_a_large_network_are_printed_in_a_few_lines() -> None:
    for thing in small():
        line = repr(thing)
        assert line.startswith(f"{type(thing).__name__}(") and "\n" not in line
        assert len(line.replace(bnncert.__file__, "")) < 400, line
        assert len(str(thing).splitlines()) <= 60
        html: Callable[[], str] | None = getattr(thing, "_repr_html_", None)
        if html is not None:
            assert html().startswith("<div>") and "<table>" in html()
