"""Writing of certificates: the statement, the facts and the trees."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bnncert.deadline import TIME_IS_UP, Deadline
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.search.trace import ClauseTrace, EliminationTrace, PatternTrace, SearchRecord
from bnncert.engine.verdict import Counterexample
from bnncert.errors import InputError
from bnncert.kernel.container import LEAF_ARRAYS, RejectedError, Section, UnreadableError, Writer
from bnncert.kernel.input_cuts import CutNumbers
from bnncert.kernel.proof import BOUND
from bnncert.kernel.section_reading import Clauses, Multipliers, joined
from bnncert.kernel.space import Space
from bnncert.kernel.statement import Statement, classification
from bnncert.model.description import SignZero
from bnncert.model.formats.atomic import replacing
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.proofs.branch_proof import joined_trees
from bnncert.proofs.elimination_proof import EliminationProof, prove_elimination
from bnncert.proofs.pattern_proof import PatternProof, prove_patterns
from bnncert.proofs.proof_builder import ProofBuilder, ProofNode
from bnncert.proofs.refutation_proof import RefutationProof, prove_at_once, prove_refutation
from bnncert.regions import InputSet

#: Targets that intervals prove, from which on one proof of all takes less than one of each.
MANY = 4

#: About the largest number of entries in one section.
SECTION_NUMBERS = 500_000


#: A proof of several targets.
SharedProof: TypeAlias = PatternProof | EliminationProof | RefutationProof


class CertificateError(InputError):
    """No certificate could be written for a verdict."""


def write_proof(
    path: str | os.PathLike[str],
    problem: Problem,
    stated: Network,
    *,
    arithmetic: str = "real",
    sign_zero: SignZero | None = None,
    record: SearchRecord | None = None,
    deadline: Deadline | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Prove that no target can be reached, and write the proof atomically.

    With float32 arithmetic the network of the problem has widened thresholds; `stated` is the one
    of the claim: as its file defines it, with `sign_zero` applied.  The record of the search has
    the presolved network and the traces of proved targets.
    """
    limit = Deadline(None) if deadline is None else deadline
    section = _statement(problem, stated, "robust", arithmetic, sign_zero)
    claim = _read(section, stated)
    record = record or SearchRecord()
    # What intervals have proved needs no presolved network.
    alone = record.presolved is None and len(problem.targets) >= MANY and not limit.passed()
    for with_pairs in (not alone, True):
        float32 = arithmetic == "float32"
        builder = _builder(problem, stated, claim.space, record, float32, limit, with_pairs)
        together = _together(builder, problem, claim, record, limit)
        proved = {number for proof in together for number in proof.targets}
        if with_pairs or builder.skeleton.empty or len(proved) == len(problem.targets):
            break
    with replacing(path) as file:
        writer = Writer(file)
        writer.add(section)
        for layer, clashes in builder.clashes.items():
            if clashes.count:
                writer.add(Section("clashes", {"layer": layer}, _clause_arrays(clashes)))
        if builder.clauses.count:
            writer.add(Section("clauses", {"layer": 0}, _clause_arrays(builder.clauses)))
        _add_branched(writer, builder)
        for several in together:
            for part in _shared_sections(several):
                writer.add(part)
        for number, target in enumerate(problem.targets):
            if builder.skeleton.empty:
                break
            if number in proved:
                continue
            if progress is not None:
                progress(f"certificate: {target.name}", number, len(problem.targets))
            own = record.traces.get(target.name)
            proof = builder.prove(number, claim.targets[number], own, limit)
            if proof is None:
                why = builder.unproved or "a leaf could not be proved exactly"
                why = TIME_IS_UP if limit.passed() else why
                raise CertificateError(f"no certificate: {target.name}: {why}")
            _add_branched(writer, builder)
            writer.add(Section("target", {"number": number, "objective": proof.objective}))
            for part in [*_cuts(proof.cuts), *_sections(proof.nodes)]:
                writer.add(part)
        writer.end()


def _builder(
    problem: Problem,
    stated: Network,
    space: Space,
    record: SearchRecord,
    float32: bool,
    limit: Deadline,
    with_pairs: bool,
) -> ProofBuilder:
    """Return a builder with all clauses that the search has learned."""
    if not with_pairs:
        return ProofBuilder(problem.network, stated, problem.region, space, None, float32=float32)
    presolved = record.presolved or presolve(problem.network, problem.region, deadline=limit)
    if any(len(t.leaves) > 1 for t in record.traces.values()):
        # Triples are searched for and recorded when they are used for the first time.
        presolved.triples_within(limit)
    builder = ProofBuilder(
        problem.network, stated, problem.region, space, presolved, float32=float32
    )
    found = [trace.clauses for trace in record.traces.values()]
    found += [trace.clauses for trace in record.patterns]
    found += [trace.clauses for trace in record.eliminations]
    found += [trace.region for trace in record.clause_proofs]
    for clauses in found:
        builder.remember(clauses, limit)
    return builder


def _together(
    builder: ProofBuilder, problem: Problem, claim: Statement, record: SearchRecord, limit: Deadline
) -> list[SharedProof]:
    """Return the proofs of several targets each, from the traces of searches for all targets."""
    numbers = {target.name: k for k, target in enumerate(problem.targets)}
    proofs: list[SharedProof] = []
    if builder.skeleton.empty:
        return proofs
    proved: set[int] = set()
    traces: list[PatternTrace | EliminationTrace | ClauseTrace]
    traces = [*record.patterns, *record.eliminations, *record.clause_proofs]

    known = {*record.traces, *(name for trace in traces for name in trace.targets)}
    #: Targets without a trace: intervals may prove them.
    others = {n: claim.targets[n] for name, n in numbers.items() if name not in known}
    for trace in traces:
        chosen = [numbers[name] for name in trace.targets if numbers[name] not in proved]
        targets = {number: claim.targets[number] for number in chosen}
        if not targets:
            continue
        if isinstance(trace, PatternTrace):
            tree = prove_patterns(builder, targets, trace, limit)
            proofs += [] if tree is None else [tree]
        elif isinstance(trace, ClauseTrace):
            more = {n: target for n, target in others.items() if n not in proved}
            made = prove_refutation(builder, {**targets, **more}, trace, numbers, limit)
            proofs += [] if made is None else [made]
        else:
            proofs += prove_elimination(builder, targets, trace, limit)
        proved.update(number for proof in proofs for number in proof.targets)
    # Intervals have proved all targets, or it is not known who has.
    alone = len(others) == len(problem.targets) >= MANY
    made = prove_at_once(builder, others, limit) if alone else None
    return proofs if made is None else [*proofs, made]


def write_counterexample(
    path: str | os.PathLike[str],
    problem: Problem,
    stated: Network,
    counterexample: Counterexample,
    *,
    arithmetic: str = "real",
    sign_zero: SignZero | None = None,
) -> None:
    """Write an exact counterexample as a certificate."""
    section = _statement(problem, stated, "not_robust", arithmetic, sign_zero)
    _read(section, stated)
    names = [t.name for t in problem.targets]
    fields: dict[str, Any] = {"target": names.index(counterexample.target)}
    if counterexample.exact is not None:
        fields["exact"] = [str(v) for v in counterexample.exact]
    with replacing(path) as file:
        writer = Writer(file)
        writer.add(section)
        point = np.asarray(counterexample.point, dtype=np.float64).reshape(-1)
        writer.add(Section("point", fields, {"point": point}))
        writer.end()


def _read(section: Section, stated: Network) -> Statement:
    """Read a statement as the checker does; a statement that it rejects is not written."""
    try:
        return Statement.read(section, stated)
    except (RejectedError, UnreadableError) as error:
        raise CertificateError(f"no certificate: {error}") from error


def region_section(region: InputSet) -> Section:
    """Return a section `statement` that states only the region.

    The boxes of a union on a grid are proved for all their real inputs, so that it has no grid.
    """
    fields, arrays = region.statement()
    section = Section("statement", dict(fields), dict(arrays))
    if region.values is not None:
        section.fields["grid"] = region.values.dtype.name
        section.arrays |= {"grid_step": region.values.step, "grid_origin": region.values.origin}
    return section


def _statement(
    problem: Problem, stated: Network, verdict: str, arithmetic: str, sign_zero: SignZero | None
) -> Section:
    """Return the statement about `stated`, the network as its file defines it."""
    section = region_section(problem.region)
    section.fields |= {
        "verdict": verdict,
        "network": stated.content_hash,
        "sizes": list(stated.sizes),
        "sign_zero": sign_zero,
        "arithmetic": arithmetic,
        "property": _property(problem),
    }
    return section


def _property(problem: Problem) -> dict[str, Any]:
    """Return the property as a classification, or as conditions on the scores."""
    targets: list[list[dict[str, Any]]] = []
    for target in problem.targets:
        targets.append([])
        for o in target.objectives:
            if o.scores is None:
                raise CertificateError("no certificate: the property is not about scores")
            scores = {str(k): str(c) for k, c in o.scores}
            targets[-1].append(_condition(scores, str(o.offset), o.tie_is_fine))
    label, rivals = problem.label, [int(t.rival) for t in problem.targets if t.rival is not None]
    fine = all(o["tie_is_fine"] for target in targets for o in target)
    margins = [[_condition({str(label): "1", str(r): "-1"}, "0", fine)] for r in rivals]
    if label is not None and targets == margins:
        return classification(label, rivals, "robust" if fine else "violation")
    return {"kind": "targets", "targets": targets}


def _condition(scores: dict[str, str], constant: str, fine: bool) -> dict[str, Any]:
    return {"scores": scores, "constant": constant, "tie_is_fine": fine}


def _small(values: Any) -> npt.NDArray[Any]:
    """Store integers in the narrowest type, since most of a proof are small."""
    array = np.asarray(values, dtype=np.int64).reshape(-1)
    for kind in ("|i1", "<i4"):
        info = np.iinfo(kind)
        if array.size == 0 or (array.min() >= info.min and array.max() <= info.max):
            return array.astype(kind)
    return array.astype("<i8")


def _clause_arrays(clauses: Clauses) -> dict[str, npt.NDArray[Any]]:
    return {
        "sizes_of_clauses": _small(np.diff(clauses.start)),
        "neurons": _small(clauses.neuron),
        "signs": _small(clauses.sign),
        "theta": _small(clauses.theta),
    }


def _add_branched(writer: Writer, builder: ProofBuilder) -> None:
    """Write the clauses that trees of inputs prove and that are not in the file yet."""
    if not builder.branched:
        return
    found = joined_trees(builder.branched)
    builder.branched = []
    arrays = {
        **_clause_arrays(found.clauses),
        "theta": _small(found.theta),
        "nodes": _small(found.nodes),
        "places": _small(found.places),
    }
    writer.add(Section("branched", {}, arrays))


def _cuts(numbers: CutNumbers | None) -> list[Section]:
    """Return the inequalities of one target as a section, if it has any."""
    if numbers is None:
        return []
    arrays = {
        **_clause_arrays(numbers.literals),
        "unit": _small(numbers.units),
        "sizes": _small([m.size for m in numbers.curvatures]),
        "curvature": _small(np.concatenate(numbers.curvatures)),
    }
    return [Section("cuts", {}, arrays)]


def _shared_sections(proof: SharedProof) -> list[Section]:
    """Return the proof of several targets as sections."""
    if isinstance(proof, EliminationProof):
        sizes = [len(part) for part in proof.parts]
        scopes = [v for part in proof.parts for v in part]
        arrays = {"sizes": _small(sizes), "scopes": _small(scopes)}
        head = Section("elimination", {"targets": proof.targets})
        return [head, Section("buckets", {}, arrays)]
    if isinstance(proof, RefutationProof):
        return [Section("refutation", {"targets": proof.targets}), *_lemmas(proof)]
    out = [Section("patterns", {"targets": proof.targets})]
    for start in range(0, proof.tree.size, SECTION_NUMBERS):
        part = proof.tree[start : start + SECTION_NUMBERS]
        out.append(Section("tree", {}, {"variables": _small(part)}))
    return out


def _lemmas(proof: RefutationProof) -> list[Section]:
    """Return the clauses of a refutation as sections of moderate size."""
    out, start = [], proof.start
    numbers = start + np.arange(start.size)
    cuts = np.searchsorted(numbers, np.arange(0, numbers[-1], SECTION_NUMBERS))
    for a, b in pairwise(np.unique([*cuts, start.size - 1]).tolist()):
        sizes, literals = np.diff(start[a : b + 1]), proof.literals[start[a] : start[b]]
        arrays = {"sizes": _small(sizes), "literals": _small(literals)}
        out.append(Section("lemmas", {}, arrays))
    return out


def _sections(nodes: Sequence[ProofNode]) -> list[Section]:
    """Return the nodes of a tree as sections of moderate size."""
    out, start, size = [], 0, 0
    for k, node in enumerate(nodes):
        size += 1
        if node.numbers is not None:
            m = node.numbers
            size += m.table_values.size + m.gate_values.size + m.diagonal.size
            size += m.clash_values.size
        if size > SECTION_NUMBERS:
            out.append(_nodes(nodes[start : k + 1]))
            start, size = k + 1, 0
    if start < len(nodes):
        out.append(_nodes(nodes[start:]))
    return out


def _nodes(nodes: Sequence[ProofNode]) -> Section:
    taught = [(k, node.learned) for k, node in enumerate(nodes) if node.learned is not None]
    since = [k for k, clauses in taught for _ in range(clauses.count)]
    learned = joined([clauses for _, clauses in taught])
    numbers = [node.numbers for node in nodes if node.kind == BOUND and node.numbers is not None]

    def together(parts: list[Any]) -> npt.NDArray[Any]:
        nothing = np.zeros(0, dtype=np.int64)
        return _small(np.concatenate([nothing, *(np.reshape(p, -1) for p in parts)]))

    arrays = {
        "kind": _small([node.kind for node in nodes]),
        "since": _small(since),
        **_clause_arrays(learned),
        "unit": _small([m.shift for m in numbers]),
        "sizes": together([_sizes(m) for m in numbers]),
    }
    for name, _, _ in LEAF_ARRAYS:
        arrays[name] = together([getattr(m, name) for m in numbers])
    if any(m.cut_values.size for m in numbers):
        arrays["cut_values"] = together([m.cut_values for m in numbers])
    return Section("nodes", {}, arrays)


def _sizes(m: Multipliers) -> list[int]:
    parts = m.tables, m.gates, m.diagonal, m.clash_values, m.split_tables
    return [part.size for part in parts]
