r"""A VNN-LIB 2.0 query about several networks as queries about their product, one ordinary network.

The inputs of the product are those of all networks, but inputs that the query sets equal, as in
``(== X[0] Z[0])``, are one input.  So neurons that two networks have in common are one neuron, and
scores of two networks can be compared.  Disjuncts that set other inputs equal have other products.

Where sign(0) may be either, it is so for each neuron of each network on its own.  Two networks of
which one is declared `equal-to` the other are one network: a neuron decides its ties alike for both
inputs, however many products of their choices the search allows, so a counterexample has to be one
for a single choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.replay import OnnxRuntime
from bnncert.engine.verdict import Counterexample, Result, merge
from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below
from bnncert.problem.problem import float32_network
from bnncert.problem.vnnlib import from_vnnlib, refuse_unfit, refuse_values
from bnncert.problem.vnnlib.query import Disjunct, LinearConstraint, Specification
from bnncert.questions.prover import Prover
from bnncert.regions import Box


def assigned_networks(query: Specification, models: Mapping[str, Network]) -> tuple[Network, ...]:
    """Give every declared network its model; one that is `equal-to` another has the same.

    Version 1.0 has one network without a name.
    """
    if not query.networks:
        return tuple(models.values())
    found: dict[str, Network] = {}
    for declared in query.networks:
        if declared.equal_to is not None:
            found[declared.name] = found[declared.equal_to]
        else:
            # A copy, because a network that is given twice is not declared to be one.
            found[declared.name] = replace(models[declared.name])
        like = declared.isomorphic_to
        if like is not None and found[like].sizes != found[declared.name].sizes:
            one, two = ("-".join(map(str, found[n].sizes)) for n in (like, declared.name))
            raise InputError(
                f"{query.path}: {declared.name} is declared isomorphic to {like}, but their "
                f"models have the layers {two} and {one}"
            )
    return tuple(found.values())


def refuse_wrong_names(query: Specification, names: Sequence[str]) -> None:
    """Raise unless there is exactly one model for each network without `equal-to`."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{query.path}: network {name} has two models")
    if not query.networks:
        # Version 1.0 has one network without a name.
        if len(names) != 1:
            raise InputError(f"{query.path}: is about one network, found {len(names)} models")
        return
    needed = {n.name: n.equal_to for n in query.networks}
    for name in names:
        if name not in needed:
            raise InputError(
                f"{query.path}: declares no network {name!r}; it declares {', '.join(needed)}"
            )
        if needed[name] is not None:
            raise InputError(
                f"{query.path}: network {name} is declared equal to {needed[name]}, whose model it "
                "has; leave its own out"
            )
    for name, equal in needed.items():
        if equal is None and name not in names:
            raise InputError(f"{query.path}: network {name} has no model (--network {name}=FILE)")


def executed_outputs(
    runtimes: Sequence[OnnxRuntime | None], parts: Sequence[FloatArray]
) -> FloatArray | None:
    """Execute all models, each at its part of the inputs; None if one cannot be executed."""
    outputs = [
        None if runtime is None else runtime.scores(part)
        for runtime, part in zip(runtimes, parts, strict=True)
    ]
    known = [output for output in outputs if output is not None]
    return np.concatenate(known) if len(known) == len(outputs) else None


@dataclass(frozen=True)
class ProductQuery(Specification):
    """A query in the inputs of a product, of which `columns` are those of the networks."""

    models: tuple[Network, ...] = ()
    columns: tuple[tuple[int, ...], ...] = ()
    runtimes: tuple[OnnxRuntime | None, ...] = ()

    def parts(self, point: Sequence[Fraction]) -> list[list[Fraction]]:
        """Divide a point of the product into the inputs of the networks."""
        return [[point[c] for c in columns] for columns in self.columns]

    def holds(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
        """Evaluate the assertions, also with the outputs of models that can be executed."""
        if not super().holds(inputs, outputs):
            return False
        parts = self.parts([Fraction(v) for v in inputs])
        if _are_copies(self.models) and _has_ties(self.models):
            from bnncert.kernel.rules.relation_products import paired_signs

            first, second = parts
            scores = (
                [score for signs in pair for score in self.models[0].output.exactly(signs)]
                for pair in paired_signs(self.models[0], first, second)
            )
            if list(outputs) not in scores:
                return False
        if None in self.runtimes:
            return True
        executed = executed_outputs(self.runtimes, [np.array(p, dtype=np.float64) for p in parts])
        # The models take float32 numbers, and other ones would be rounded.
        exact = all(Fraction(float(np.float32(float(v)))) == v for part in parts for v in part)
        if executed is None or not exact or not np.all(np.isfinite(executed)):
            return False
        return super().holds(inputs, [Fraction(v) for v in executed.tolist()])


def verify_several(prover: Prover, networks: Sequence[Network], query: Specification) -> Result:
    """Decide a query about several networks; the counterexample has the inputs of all of them."""
    refuse_unsupported(networks, query)
    results = []
    for part in _product_queries(networks, query, is_real=prover.arithmetic == "real"):
        product, stated = part
        problems = from_vnnlib(product, stated)
        found = prover.decide(problems, whole=True, query=stated)
        results.append(_in_all_inputs(found, networks, stated))
        if results[-1].status == "not_robust":
            break
    return merge(results) if results else prover.decide([])


def _are_copies(networks: Sequence[Network]) -> bool:
    return len(networks) == 2 and networks[0] is networks[1]


def _has_ties(networks: Sequence[Network]) -> bool:
    return any(layer.sign_zero == "either" for net in networks for layer in net.layers)


def refuse_unsupported(networks: Sequence[Network], query: Specification) -> None:
    """Raise if the query does not fit the networks, or asserts what the product does not have."""
    for declared, network in zip(query.networks, networks, strict=True):
        where = f"{query.path}: network {declared.name}"
        refuse_unfit(where, declared.input.count, declared.output.count, network, query)
    if len(networks) > 2 and _has_ties(networks):
        raise InputError(
            f"{query.path}: is about {len(networks)} networks, and sign(0) may be either; state "
            "it with --sign-zero plus or minus"
        )
    owners = np.repeat(np.arange(len(networks)), [net.classes for net in networks])
    for disjunct in query.disjuncts:
        if disjunct.ball is not None:
            raise InputError(
                f"{query.path}: a Euclidean ball of the inputs of several networks is unsupported"
            )
        for constraint in disjunct.output_constraints:
            _refuse_scores(networks, owners.tolist(), constraint, query.path)


def _refuse_scores(
    networks: Sequence[Network], owners: Sequence[int], constraint: LinearConstraint, path: str
) -> None:
    """Raise if a constraint compares scores whose values are not those of the models' files."""
    used = [networks[k] for k in dict.fromkeys(owners[j] for j, _ in constraint.outputs)]
    softmax = [net for net in used if net.output_transform == "softmax"]
    if softmax:
        refuse_values(constraint, path)
    distinct, plain = {id(net) for net in used}, all(net.output.gain_is_one for net in used)
    if len(used) > 1 and (softmax or (len(distinct) > 1 and not plain)):
        raise InputError(
            f"{path}:{constraint.line}: compares scores of two networks that end in Softmax or "
            "have an irrational scale (unsupported)"
        )


# -- products ---------------------------------------------------------------------------------


def _product_queries(
    networks: Sequence[Network], query: Specification, *, is_real: bool
) -> Iterator[tuple[Network, ProductQuery]]:
    """Yield the products with their queries: one for each way to set inputs equal."""
    starts = [0, *accumulate(net.inputs for net in networks)]
    groups: dict[tuple[int, ...], list[Disjunct]] = {}
    for disjunct in query.disjuncts:
        groups.setdefault(_columns(disjunct, starts), []).append(disjunct)
    runtimes = tuple(OnnxRuntime.of(net) for net in networks)
    for columns, members in groups.items():
        moved = [d for d in (_moved(member, columns) for member in members) if d is not None]
        if not moved:
            continue
        parts = tuple(columns[a:b] for a, b in pairwise(starts))
        models = tuple(networks) if is_real else _widened(networks, parts, moved)
        stated = ProductQuery(
            query.path,
            max(columns) + 1,
            query.output_count,
            tuple(moved),
            tuple(
                step._replace(size=columns[step.size])
                if step.operation in ("X", "lower", "upper")
                else step
                for step in query.program
            ),
            query.number_format,
            models=models,
            columns=parts,
            runtimes=runtimes,
        )
        yield _product(models, parts), stated


def _product(networks: Sequence[Network], parts: Sequence[Sequence[int]]) -> Network:
    """Return all networks as one, whose scores are theirs in order."""
    # Imported on use, because the competition measures the start-up of queries about one network.
    from bnncert.kernel.rules.product import product_network

    made = networks[0]
    for network, columns in zip(networks[1:], parts[1:], strict=True):
        copies = _are_copies(networks)
        made = product_network(
            made, network, columns=columns, copies=copies, enclosed_apart=True
        ).network
    return made


def _widened(
    networks: Sequence[Network], parts: Sequence[Sequence[int]], disjuncts: Sequence[Disjunct]
) -> tuple[Network, ...]:
    """Widen the thresholds for float32 executions over the boxes of all disjuncts.

    One network for several inputs stays one: its executions are those of one function.
    """
    lower = [float_below(min(values)) for values in zip(*(d.lower for d in disjuncts), strict=True)]
    upper = [float_above(max(values)) for values in zip(*(d.upper for d in disjuncts), strict=True)]
    lows, highs = np.array(lower), np.array(upper)
    made: dict[int, Network] = {}
    for network in networks:
        own = [list(p) for p, net in zip(parts, networks, strict=True) if net is network]
        box = Box(lows[own].min(axis=0), highs[own].max(axis=0))
        made.setdefault(id(network), float32_network(network, box))
    return tuple(made[id(network)] for network in networks)


def _columns(disjunct: Disjunct, starts: Sequence[int]) -> tuple[int, ...]:
    """Give each input its number in the product; inputs of two networks that are equal share it."""
    below = set()
    for constraint in disjunct.input_constraints:
        if len(constraint.inputs) == 2 and not constraint.constant:
            (i, a), (j, b) = constraint.inputs
            if a == -b:
                below.add((i, j) if a > 0 else (j, i))
    equal: dict[int, list[int]] = {}
    for i, j in sorted(below):
        if i < j and (j, i) in below:
            equal.setdefault(j, []).append(i)
    columns = list(range(starts[1]))
    count = len(columns)
    for start, end in pairwise(starts[1:]):
        own: set[int] = set()
        for j in range(start, end):
            known = (columns[i] for i in equal.get(j, ()) if i < start and columns[i] not in own)
            column = next(known, count)
            count = max(count, column + 1)
            own.add(column)
            columns.append(column)
    return tuple(columns)


def _moved(disjunct: Disjunct, columns: Sequence[int]) -> Disjunct | None:
    """Write a disjunct in the inputs of the product; None if its box is empty."""
    count = max(columns) + 1
    lower: list[Fraction | None] = [None] * count
    upper: list[Fraction | None] = [None] * count
    for column, low, high in zip(columns, disjunct.lower, disjunct.upper, strict=True):
        known = lower[column]
        lower[column] = low if known is None else max(known, low)
        known = upper[column]
        upper[column] = high if known is None else min(known, high)
    lows = tuple(v for v in lower if v is not None)
    highs = tuple(v for v in upper if v is not None)
    if any(low > high for low, high in zip(lows, highs, strict=True)):
        return None
    constraints = []
    for constraint in disjunct.input_constraints:
        total: dict[int, Fraction] = {}
        for i, a in constraint.inputs:
            total[columns[i]] = total.get(columns[i], Fraction(0)) + a
        inputs = tuple(sorted((c, a) for c, a in total.items() if a))
        if inputs:
            constraints.append(replace(constraint, inputs=inputs))
        elif constraint.constant > 0:
            return None
    return replace(disjunct, lower=lows, upper=highs, input_constraints=tuple(constraints))


# -- counterexamples --------------------------------------------------------------------------


def _in_all_inputs(result: Result, networks: Sequence[Network], stated: ProductQuery) -> Result:
    """Write the counterexamples of a product in the inputs of all networks."""
    gains = np.concatenate([np.full(net.classes, net.output.gain) for net in networks])
    columns = [c for part in stated.columns for c in part]

    def moved(found: Counterexample | None) -> Counterexample | None:
        if found is None:
            return None
        return replace(
            found,
            point=found.point[columns],
            exact=None if found.exact is None else tuple(found.exact[c] for c in columns),
            scores=found.scores * gains,
            best=None,
            replayed_in=("exact", *(() if None in stated.runtimes else ("onnxruntime",))),
        )

    targets = tuple(replace(t, counterexample=moved(t.counterexample)) for t in result.targets)
    return replace(result, targets=targets, counterexample=moved(result.counterexample))
