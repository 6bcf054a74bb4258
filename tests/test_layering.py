"""The rule of docs/architecture.md: a module imports only from its own room and those before it.

Every import counts, also those inside functions and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import bnncert

SOURCE = Path(bnncert.__file__).parent

#: The rooms in the order in which data flows; a room imports from itself and from those before it.
ROOMS = (
    "model",
    "regions",
    "problem",
    "engine",
    "kernel",
    "proofs",
    "questions",
    "results",
    "report",
    "extras",
    "cli",
)

#: The modules beside the rooms, which every room may import, and the start of the program.
ROOT = ("version", "errors", "arrays", "deadline")
START = "__main__"

#: The parts of the engine, in the same sense.
ENGINE = (
    "processes",
    "cluster",
    "timing",
    "solvers",
    "presolve",
    "relaxations",
    "reachability",
    "answer",
    "verdict",
    "replay",
    "search",
    "methods",
    "exact_classes",
    "batches",
    "method_run",
)


@cache
def nodes(source: str) -> list[ast.AST]:
    """Return all nodes of a source, which several tests look through."""
    return list(ast.walk(ast.parse(source)))


@cache
def modules() -> dict[str, Path]:
    """Return all modules of the package by dotted name, without the package itself."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(("bnncert", *(p for p in parts if p != "__init__")))
        found[name] = path
    return {name: path for name, path in found.items() if name != "bnncert"}


def imports(name: str, source: str, known: set[str], *, is_package: bool = False) -> set[str]:
    """Return the modules of the package that a source imports."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("bnncert")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            if (node.module or "").split(".")[0] == "bnncert":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in known else str(node.module))
    # A package re-exports what its own modules define.
    return {m for m in found if m != name and not (is_package and m.startswith(name + "."))}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def place(module: str) -> tuple[int, int]:
    """Return the number of a module's room, and of its part of the engine."""
    name, _, part = module.removeprefix("bnncert.").partition(".")
    if name in ROOT:
        return -1, 0
    if name == START:
        return len(ROOMS), 0
    inner = ENGINE.index(part.split(".")[0]) if name == "engine" and part else 0
    return ROOMS.index(name), inner


def misplaced(source: str, name: str, known: set[str]) -> list[str]:
    """Return the imports of one module that come neither from its room nor from one before it."""
    return [
        f"{name} imports {target}"
        for target in sorted(imports(name, source, known))
        if target == "bnncert" or place(target) > place(name)
    ]


def test_every_module_has_a_room() -> None:
    assert {room(name) for name in modules()} == {*ROOMS, *ROOT, START}
    inside = {name.split(".")[2] for name in modules() if name.startswith("bnncert.engine.")}
    assert inside == set(ENGINE)


@pytest.mark.parametrize("wanted", [*ROOMS, *ROOT, START])
def test_a_room_imports_only_from_those_before_it(wanted: str) -> None:
    known = modules()
    wrong = []
    for name, path in known.items():
        if room(name) == wanted:
            wrong += misplaced(path.read_text("utf-8"), name, set(known))
    assert wrong == []


def test_a_file_name_says_where_it_is() -> None:
    """A name that stands in more than two places is one that nobody can guess from."""
    files = [path.name for path in modules().values() if path.name != "__init__.py"]
    assert {name for name in files if files.count(name) > 2} == set()


def test_an_import_in_the_other_direction_is_found_wherever_it_stands() -> None:
    known = set(modules())
    for text in (
        "from bnncert.engine.search.tree import Tree",
        "def f():\n    from bnncert.engine.search import tree",
        "if TYPE_CHECKING:\n    import bnncert.engine.search.tree",
        "import bnncert",
    ):
        assert misplaced(text, "bnncert.engine.presolve.pairs", known)
    assert not misplaced(
        "from bnncert.engine.presolve.pairs import conflicting_pairs",
        "bnncert.engine.search.tree",
        known,
    )


def test_no_two_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    graph = {
        name: imports(
            name, path.read_text("utf-8"), set(known), is_package=path.name == "__init__.py"
        )
        for name, path in known.items()
    }
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_checker_shares_no_code_with_the_search() -> None:
    known = modules()
    for name, path in known.items():
        if room(name) == "kernel":
            used = {room(m) for m in imports(name, path.read_text("utf-8"), set(known))}
            # A rule derives networks, and says which ones have none.
            rule = name.startswith("bnncert.kernel.rules")
            assert used <= {"arrays", "model", "kernel", *(["errors"] * rule)}, name


def test_questions_share_with_the_checker_what_a_claim_means_and_nothing_else() -> None:
    known = modules()
    shared = ("container", "space", "rules", "claims")
    for name, path in known.items():
        if room(name) not in ("kernel", "proofs"):
            for target in imports(name, path.read_text("utf-8"), set(known)):
                if room(target) == "kernel" and target != "bnncert.kernel":
                    assert target.split(".")[2] in shared, f"{name} imports {target}"


def test_questions_take_from_the_claims_what_the_page_names() -> None:
    """docs/certificates.md names it in what is trusted."""
    found = set()
    for name, path in modules().items():
        if room(name) not in ("kernel", "proofs"):
            for node in nodes(path.read_text("utf-8")):
                home = str(node.module) if isinstance(node, ast.ImportFrom) else ""
                if home.startswith("bnncert.kernel.claims"):
                    found |= {alias.name for alias in node.names}
    page = (SOURCE.parents[1] / "docs" / "certificates.md").read_text("utf-8")
    shared = page.split("take their parts from the claims ")[1].split(";")[0]
    assert found == set(re.findall(r"`(\w+)`", shared))


def test_every_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in nodes(path.read_text("utf-8")):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert {found: names for found, names in homes.items() if len(names) > 1} == {}
