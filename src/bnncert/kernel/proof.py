"""Check of ordinary certificates: every fact is derived again in exact arithmetic.

An ordinary certificate consists of the *statement* (network, region, property); *clashes* and
*clauses*, signs of neurons that exclude each other, each with the multipliers that prove it, and
*branched* clauses, each with a tree of inputs; then for every target a tree of signs, in preorder,
whose branches cover all cases because each one splits a variable into its two signs. Its leaves are
contradictions or bounds of f above zero. In a tree of first-layer signs for several targets
(`patterns`), propagation and enumeration close the leaves. Several targets may also be proved by
one elimination of variables (`elimination`), or by clauses up to the empty one (`refutation`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bnncert.arrays import SignArray as Signs
from bnncert.kernel import branches
from bnncert.kernel import section_reading as reading
from bnncert.kernel.budget import timed
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.counterexample import check_point
from bnncert.kernel.elimination import Elimination
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.input_cuts import derive_cuts, read_cuts
from bnncert.kernel.leaves import Goal
from bnncert.kernel.patterns import Patterns, PatternTree
from bnncert.kernel.refutation import Refutation, facts
from bnncert.kernel.section_reading import Clauses, Multipliers
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.statement import ScoreFunction, Statement
from bnncert.model.network import Network

#: Kinds of nodes besides a branch, whose number is its variable.
CONFLICT, RANGES, BOUND, PATTERNS = -1, -2, -3, -4

#: The sections that begin a proof, and those that it consists of.
PARTS = {
    "target": "nodes",
    "patterns": "tree",
    "elimination": "buckets",
    "refutation": "lemmas",
}


def check_trees(
    sections: Iterator[Section], statement: Statement, network: Network, geometry: Geometry
) -> tuple[int, int]:
    """Check the proof that no target can be reached; return the numbers of clauses and leaves."""
    nothing = Section("end")
    clashes: dict[int, Clauses] = {}
    known: list[Clauses] = []
    current = next(sections, nothing)
    while current.name in ("clashes", "clauses"):
        layer = current.number("layer")
        if layer >= network.depth or (current.name == "clauses" and layer > 0):
            raise RejectedError("a clause is about a layer that it cannot be about")
        limit = geometry.inequalities if layer == 0 else 0
        found = reading.read_clauses(current, network.layers[layer].size, limit)
        if current.name == "clauses":
            _refuse_unproved(found, geometry)
            known.append(found)
        elif layer in clashes:
            raise RejectedError("a layer has two lists of clashes")
        else:
            clashes[layer] = found
        current = next(sections, nothing)
    skeleton = Skeleton(network, geometry, clashes)
    clauses = reading.joined(known)
    done, leaves, followed = set[int](), 0, 0
    while current.name in (*PARTS, "branched"):
        if current.name == "branched":
            clauses = reading.joined([clauses, _branched(current, geometry)])
            current = next(sections, nothing)
            continue
        part = PARTS[current.name]
        chosen = [current.number("number")] if part == "nodes" else current.numbers("targets")
        if not done.isdisjoint(chosen) or max(chosen) >= len(statement.targets):
            raise RejectedError("a target does not exist, or occurs twice")
        done.update(chosen)
        targets = [statement.targets[k] for k in chosen]
        walk: Walk | PatternTree | Elimination | Refutation
        if part == "nodes":
            objective = _objective(current, targets[0])
            goal = Goal(skeleton, objective.of(network), clauses)
            walk = Walk(goal, objective, geometry, clauses)
        elif part == "tree":
            walk = PatternTree(Patterns(skeleton, geometry, clauses, targets))
        elif part == "buckets":
            walk = Elimination(skeleton, clauses, targets)
        else:
            walk = Refutation(facts(skeleton, geometry, clauses, targets))
        current = next(sections, nothing)
        while current.name == part or (current.name == "cuts" and part == "nodes"):
            walk.take(current)
            current = next(sections, nothing)
        walk.finish()
        clauses = reading.joined([clauses, *walk.learned])
        leaves += walk.leaves
        followed += walk.followed if isinstance(walk, Refutation) else 0
    if current is not nothing:
        raise UnreadableError(f"section {current.name!r} is unknown or out of place")
    if len(done) < len(statement.targets) and not skeleton.empty:
        raise RejectedError("a target is not proved")
    return followed + clauses.count + sum(c.count for c in clashes.values()), leaves


def _objective(section: Section, target: list[ScoreFunction]) -> ScoreFunction:
    """Choose the function of a target that its tree shows to be positive."""
    chosen = section.number("objective")
    if chosen >= len(target):
        raise RejectedError("a target has no such objective")
    return target[chosen]


def _refuse_unproved(clauses: Clauses, geometry: Geometry) -> None:
    if not all(geometry.proved(part).all() for part in timed(clauses.parts())):
        raise RejectedError("a clause is not proved")


def _branched(section: Section, geometry: Geometry) -> Clauses:
    """Check the clauses of a section that are proved by branching on inputs."""
    found = branches.read_branched(section, geometry)
    branches.refuse_unproved(found, geometry)
    return found.clauses


class Walk:
    """Goes through the nodes of one tree in preorder."""

    def __init__(
        self, goal: Goal, objective: ScoreFunction, geometry: Geometry, clauses: Clauses
    ) -> None:
        self.goal, self.objective, self.geometry = goal, objective, geometry
        self.learned: list[Clauses] = []
        #: The clauses that are known at the current node.
        self.known = [clauses]
        self.patterns: Patterns | None = None
        #: The signs of all nodes that follow, the next one last.
        self.stack: list[Signs] = [np.zeros(goal.skeleton.size, dtype=np.int8)]
        self.leaves = 0

    def take(self, section: Section) -> None:
        """Check the nodes of one section; it may add clauses that hold from some node on."""
        if section.name == "cuts":
            self._take_cuts(section)
            return
        multipliers = reading.read_leaves(section, len(self.goal.cuts))
        found = reading.read_clauses(section, self.geometry.size, self.geometry.inequalities)
        since, kinds = section.integers("since"), section.integers("kind")
        if since.size != found.count or np.any(np.diff(since) < 0):
            raise UnreadableError("section nodes: clauses out of order")
        _refuse_unproved(found, self.geometry)
        self.learned.append(found)
        places = np.searchsorted(since, np.arange(kinds.size + 1))
        for number, kind in enumerate(map(int, timed(kinds))):
            if places[number + 1] > places[number]:
                self._learn(found.part(places[number], places[number + 1]))
            if not self.stack:
                raise RejectedError("a tree continues after its end")
            path = self.stack.pop()
            if kind == PATTERNS:
                self._enumerate(path)
            elif kind < 0:
                self._leaf(path, kind, multipliers)
            if kind < 0:
                continue
            if kind >= path.size or path[kind]:
                raise RejectedError("a node splits a variable that is not open")
            for sign in (-1, 1):
                child = path.copy()
                child[kind] = sign
                self.stack.append(child)
        if next(multipliers, None) is not None:
            raise RejectedError("there are numbers that do not belong to a leaf")

    def _take_cuts(self, section: Section) -> None:
        """Derive the inequalities of first-layer signs that all leaves may use."""
        if self.goal.cuts or self.learned:
            raise RejectedError("a target has two lists of inequalities, or one after its nodes")
        numbers = read_cuts(section, self.geometry)
        self.goal.cuts = derive_cuts(numbers, self.geometry, self.goal.skeleton)

    def _learn(self, clauses: Clauses) -> None:
        self.known.append(clauses)
        self.goal.learn(clauses)
        if self.patterns is not None:
            self.patterns.learn(clauses)

    def _enumerate(self, path: Signs) -> None:
        """Reject a leaf with a pattern of first-layer signs at which f is not positive."""
        self.leaves += 1
        if self.patterns is None:
            known, targets = reading.joined(self.known), [[self.objective]]
            self.patterns = Patterns(self.goal.skeleton, self.geometry, known, targets)
        # Signs of later layers are ignored: this checks more patterns than the leaf has.
        self.patterns.refuse_reached(path[None, : self.patterns.inputs])

    def finish(self) -> None:
        """Reject a tree that is not complete."""
        if self.stack:
            raise RejectedError("a tree does not cover all cases")

    def _leaf(self, path: Signs, kind: int, multipliers: Iterator[Multipliers]) -> None:
        """Check that a path is impossible, or that f is positive on it."""
        self.leaves += 1
        numbers = Multipliers.none() if kind == RANGES else None
        if kind == BOUND:
            numbers = next(multipliers, None)
        view = None if self.goal.skeleton.empty else self.goal.view(path)
        if view is None:
            return
        if numbers is None:
            raise RejectedError("a leaf is not a contradiction and has no numbers")
        bound = self.goal.bound(view, numbers)
        if not self.goal.function.is_positive_from(bound):
            raise RejectedError(f"a leaf only shows f >= {float(bound):.6g}")


# -- the certificates of a file, one after the other ------------------------------------------

#: Fields and arrays of a statement that `Statement.read` compares with the network, or that are
#: only evidence.
COMPARED, EVIDENCE = {"network", "sizes", "sign_zero"}, {"inside"}


class PartReader:
    """Reads and checks the parts of a file; each begins with a section `statement`."""

    def __init__(self, sections: Iterator[Section]) -> None:
        self._sections = sections
        #: The first section of the part that follows, if it has been read.
        self._first: Section | None = None
        #: The sizes of all proofs that have been checked.
        self.targets = self.clauses = self.leaves = 0

    def take(self, network: Network, needed: Section | None = None) -> Statement:
        """Check the next part, which has to be about this network; return what it proves.

        With `needed`, a section `statement`, the part has to state exactly the same verdict,
        arithmetic, region and property.
        """
        sections = self._part()
        first = next(sections, Section("end"))
        statement = Statement.read(first, network)
        if needed is not None:
            _refuse_other_statement(first, needed)
        geometry = Geometry(network.layers[0], statement.space, float32=statement.float32)
        if statement.verdict == "not_robust":
            statement = check_point(sections, statement, network, geometry)
        else:
            clauses, leaves = check_trees(sections, statement, network, geometry)
            self.clauses += clauses
            self.leaves += leaves
        self.targets += len(statement.targets)
        return statement

    def finish(self) -> None:
        """Refuse a file with more parts than were taken."""
        more = self._first or next(self._sections, None)
        if more is not None:
            raise UnreadableError(f"section {more.name!r} is unknown or out of place")

    def _part(self) -> Iterator[Section]:
        """Yield the sections up to the next statement, which is kept."""
        first, self._first = self._first or next(self._sections, None), None
        if first is None:
            return
        yield first
        for section in self._sections:
            if section.name == "statement":
                self._first = section
                return
            yield section


def _refuse_other_statement(stated: Section, needed: Section) -> None:
    """Reject a part with another verdict, arithmetic, region or property than is needed."""
    fields, wanted = (
        {k: v for k, v in s.fields.items() if k not in COMPARED} for s in (stated, needed)
    )
    arrays, vectors = (
        {k: v for k, v in s.arrays.items() if k not in EVIDENCE} for s in (stated, needed)
    )
    same = fields == wanted and arrays.keys() == vectors.keys()
    if not same or not all(np.array_equal(arrays[k], vectors[k]) for k in arrays):
        raise RejectedError("a part proves another statement than the claim needs")
