"""Small composite certificates with numbers as large as the format permits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import bnncert
from bnncert.kernel.container import Section


@dataclass(frozen=True, eq=False)
class Bomb:
    """The network and the sections of a file."""

    network: bnncert.Network
    sections: list[Section]
    other: bnncert.Network | None = None


Bombs: TypeAlias = dict[str, Callable[[], Bomb]]


def random_network(*sizes: int, seed: int = 0, zero: int = 0, **options: Any) -> bnncert.Network:
    """Return a network with random weights -1 and 1; `zero` more of ten are 0."""
    rng = np.random.default_rng(seed)
    values = np.array([-1, 1] * 5 + [0] * zero)
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    weights = [rng.choice(values, shape) for shape in shapes]
    biases = [rng.integers(-3, 4, n) + 0.5 for n, _ in shapes[:-1]] + [np.zeros(sizes[-1])]
    return bnncert.Network.from_arrays(weights, biases, **options)


def claim(kind: str, details: dict[str, Any], **arrays: Any) -> Section:
    return Section("claim", {"kind": kind, "details": details}, arrays)


# -- two copies -------------------------------------------------------------------------------


def two_copies(
    network: bnncert.Network, changes: list[dict[str, Any]], hi: float = 1.0, **details: Any
) -> Bomb:
    relation = {"label": None, "score": None, "falling": False}
    details = {"relation": relation, "one_hot": [], "failure": None} | details
    details |= {"network": network.content_hash, "changes": changes, "region": {"region": "box"}}
    lo = np.zeros(network.inputs)
    return Bomb(network, [claim("two copies", details, lo=lo, hi=lo + hi)])


def states(feature: int, count: int) -> dict[str, Any]:
    """Return a change of one input with many values."""
    return {"features": [feature], "step": None, "values": [[str(k)] for k in range(count)]}


def large() -> bnncert.Network:
    return random_network(784, 500, 250, 10)


#: Values of all inputs at once, as many as fit a line of JSON.
LONG_VALUES = {
    "features": list(range(784)),
    "step": None,
    "values": [[str(k)] * 784 for k in range(190)],
}

COPIES: Bombs = {
    # The failure of the last of 8191 parts, with a cell of other changes for each, and of none.
    "late_failure": lambda: two_copies(large(), [states(0, 8192)], 8192.0, failure=[8190, 0]),
    "late_failure_in_cells": lambda: two_copies(
        large(), [states(k, 2) for k in range(10)], failure=[5119, 0]
    ),
    "failure_beyond_all": lambda: two_copies(
        large(), [states(0, 8192)], 8192.0, failure=[10**9, 0]
    ),
    # All pairs of classes, each compared with all classes.
    "many_violations": lambda: two_copies(random_network(20, 20, 300), [states(0, 2)]),
    # One-hot groups and changes, whose product is far above the limit.
    "many_cells": lambda: two_copies(
        random_network(784, 50, 10),
        [states(783, 2)],
        one_hot=[list(range(k, k + 28)) for k in range(0, 756, 28)],
    ),
    "long_values": lambda: two_copies(
        random_network(784, 500, 10), [LONG_VALUES], 200.0, failure=[188, 0]
    ),
}


# -- unions -----------------------------------------------------------------------------------


def union(network: bnncert.Network, norm: str, radius: int, **details: Any) -> Bomb:
    details = {"verdict": "robust", "parts": [], "place": None} | details
    details |= {"label": 0, "rivals": list(range(1, network.classes)), "ties": "violation"}
    region = {"region": norm, "radius": str(radius), "value": None}
    details |= {"network": network.content_hash, "region": region}
    lo = np.zeros(network.inputs)
    return Bomb(network, [claim("union", details, center=lo, clip_lo=lo, clip_hi=lo + 1)])


def constant_network(*shape: int) -> bnncert.Network:
    """Return a network whose class is 0, which is seen layer by layer."""
    size = int(np.prod(shape))
    net = random_network(size, 40, 40, 2, input_shape=shape)
    weights = [layer.weights.toarray() for layer in net.layers]
    biases = [net.layers[0].bias, net.layers[1].bias]
    return bnncert.Network.from_arrays(
        [*weights, np.zeros((2, 40))], [*biases, [1.0, 0.0]], input_shape=shape
    )


def halves() -> Bomb:
    """A patch whose halves are never proved: the class of the image holds for no other input."""
    size = 28 * 28
    rng = np.random.default_rng(0)
    first = np.concatenate([rng.choice([-1, 1], (300, size)), -np.ones((1, size))])
    bias = np.concatenate([np.full(300, 0.5), [0.0]])
    last = np.zeros((2, 301))
    last[0, :300] = 1
    net = bnncert.Network.from_arrays(
        [first, last], [bias, [300 - 2 * 60, 0.0]], input_shape=(28, 28)
    )
    return union(net, "patch", 28)


def on_96_pixels(norm: str, radius: int, **details: Any) -> Bomb:
    return union(constant_network(96, 96), norm, radius, **details)


UNIONS: Bombs = {
    # 9217 boxes of 96 x 96 pixels, proved one by one, or each with a part that is missing.
    "many_patches": lambda: on_96_pixels("patch", 1),
    "listed_patches": lambda: on_96_pixels("patch", 1, parts=list(range(9217))),
    # 36,481 shifts, and a counterexample in the last one.
    "many_shifts": lambda: on_96_pixels("shift", 95),
    "late_place": lambda: on_96_pixels("shift", 95, verdict="not_robust", place=36480),
    # A patch of any values that is halved again and again.
    "one_hard_patch": lambda: union(
        random_network(28 * 28, 500, 250, 10, input_shape=(28, 28)), "patch", 28
    ),
    "halves": halves,
}


# -- counts -----------------------------------------------------------------------------------


def count(
    network: bnncert.Network, region: dict[str, Any], kinds: list[int], **arrays: Any
) -> Bomb:
    whole = {"split_items", "split_at", "open_sizes", "open", "group_sizes", "groups"}
    given = {k: np.array(arrays.pop(k, []), dtype="<i4") for k in whole}
    given |= {"kinds": np.array(kinds, dtype="|i1")}
    given |= {k: np.broadcast_to(v, network.inputs).astype("<f8") for k, v in arrays.items()}
    details = {"network": network.content_hash, "label": 0, "ties": "violation", "region": region}
    details |= {"rivals": list(range(1, network.classes)), "lower": "0", "total": "0"}
    return Bomb(network, [claim("count", details | {"upper": "0"}, **given)])


BOX = {"region": "box", "grid": "float64"}
ON_GRID = {"grid_step": 1.0, "grid_origin": 0.0}


def mergers() -> Bomb:
    """100 levels of splits and mergers, each of which keeps all items and neurons."""
    net, levels = random_network(784, 500, 10), 100
    return count(
        net,
        BOX,
        [4, 5] * levels + [0] * (levels + 1),
        split_items=list(range(levels)),
        split_at=[1] * levels,
        open_sizes=[500] * levels,
        open=list(range(500)) * levels,
        group_sizes=[784] * levels,
        groups=list(range(784)) * levels,
        **ON_GRID,
        lo=0,
        hi=1,
    )


def deep_splits() -> Bomb:
    """200,000 levels of splits, each of which has all items."""
    levels = 784 * 255
    return count(
        random_network(784, 50, 10),
        BOX,
        [4] * levels + [0] * (levels + 1),
        split_items=np.repeat(np.arange(784), 255),
        split_at=np.tile(np.arange(255, 0, -1), 784),
        **ON_GRID,
        lo=0,
        hi=255,
    )


def wide(
    neurons: int, kinds: list[int], lo: float = 0.0, values: int = 2**22 - 30, **arrays: Any
) -> Bomb:
    """Return a count in which one input has up to four million values, and the others have one."""
    hi = np.full(20, lo)
    hi[0] += values
    return count(random_network(20, neurons, 10), BOX, kinds, **ON_GRID, lo=lo, hi=hi, **arrays)


def wide_values() -> Bomb:
    """Values on a grid that need many bits."""
    hi = np.full(20, 2.0**100)
    hi[0] = 2.0**-600
    net, step = random_network(20, 50, 10), hi / 100_000
    return count(net, BOX, [0], grid_step=step, grid_origin=0.0, lo=0, hi=hi)


def l0(network: bnncert.Network, radius: int, kinds: list[int], hi: Any, **arrays: Any) -> Bomb:
    region = {"region": "l0", "radius": str(radius), "grid": "float64"}
    return count(network, region, kinds, **ON_GRID, center=0, clip_lo=0, clip_hi=hi, **arrays)


def equal_columns(inputs: int) -> bnncert.Network:
    """Return a network in which all inputs have the same weights."""
    column = np.random.default_rng(0).choice([-1, 1], (50, 1))
    last = np.random.default_rng(1).choice([-1, 1], (2, 50))
    biases = [np.full(50, 0.5), np.zeros(2)]
    return bnncert.Network.from_arrays([np.repeat(column, inputs, axis=1), last], biases)


def merged(inputs: int, groups: Any) -> dict[str, Any]:
    """Return the arrays of one merger."""
    sizes = {"open_sizes": [50], "group_sizes": [inputs]}
    return sizes | {"open": list(range(50)), "groups": groups}


COUNTS: Bombs = {
    "mergers": mergers,
    # Four million values of one input, also split value by value, so that all others wait.
    "many_values": lambda: wide(50, [0]),
    "split_values": lambda: wide(
        50,
        [4] * 32 + [0] * 33,
        split_items=[0] * 32,
        split_at=[2**22 - 31 - k for k in range(32)],
    ),
    "deep_splits": deep_splits,
    # Leaves with half a million alternatives and many open neurons, and with 2^3000 cells.
    "wide_leaf": lambda: wide(500, [3], lo=-(2.0**18), values=2**19),
    "deep_leaf": lambda: count(random_network(3000, 200, 10), BOX, [3], **ON_GRID, lo=0, hi=1),
    "narrow_leaf": lambda: count(random_network(3000, 1, 10), BOX, [3], **ON_GRID, lo=0, hi=1),
    # Leaves of L0 balls: inputs of 256 values, three of which change; many changes; many values.
    "changed_leaf": lambda: l0(random_network(784, 50, 10), 3, [3], 255),
    "changed_far": lambda: l0(random_network(784, 50, 10), 784, [3], 1),
    "changed_wide": lambda: l0(random_network(20, 500, 10), 1, [3], 2**19 * np.eye(20)[0]),
    # Inputs with equal weights as one item, in pairs, and without a budget.
    "merged_changes": lambda: l0(equal_columns(784), 784, [5, 0], 255, **merged(784, [0] * 784)),
    "merged_pairs": lambda: l0(
        equal_columns(784), 784, [5, 0], 700, **merged(784, np.arange(784) // 2)
    ),
    "merged_values": lambda: count(
        equal_columns(3000), BOX, [5, 0], **ON_GRID, lo=0, hi=300, **merged(3000, [0] * 3000)
    ),
    # The number of points of a large L0 ball.
    "many_points": lambda: l0(random_network(3072, 50, 10), 3072, [0], 255),
    "wide_values": wide_values,
}


# -- the other claims -------------------------------------------------------------------------


def explanation() -> Bomb:
    """Two million changes of one witness, of which none is exact."""
    net, size, many = random_network(784, 50, 10), 784, 2**21
    numbers = {"kept": [0], "needed": [0], "targets": [0], "starts": [0, many]}
    arrays = {k: np.array(v, dtype="<i4") for k, v in numbers.items()}
    arrays |= {"changed": np.zeros(many, dtype="|i1"), "values": np.zeros(many)}
    arrays |= {k: np.zeros(size) for k in ("center", "clip_lo", "clip_hi")}
    details = {"label": 0, "ties": "violation", "region": {"region": "linf", "radius": "1"}}
    details |= {"blocks": None}
    return Bomb(net, [claim("explanation", details | {"exact": {str(many): "1"}}, **arrays)])


def faults(network: bnncert.Network, rows: list[dict[str, Any]], **arrays: Any) -> Bomb:
    rows = [{"certified": None, "proof": None, "faults": None} | row for row in rows]
    details = {"network": network.content_hash, "label": 0, "ties": "robust", "rows": rows}
    details |= {"rivals": list(range(1, network.classes)), "region": {"region": "box"}}
    given = {"lo": np.zeros(network.inputs), "hi": np.zeros(network.inputs)} | arrays
    return Bomb(network, [claim("faults", details, **given)])


def many_faults() -> Bomb:
    """Faults in a wide layer whose costs are large: the table of all costs has gigabytes."""
    shapes = [(2000, 600), (1500, 2000), (2, 1500)]
    weights = [np.ones(shape) for shape in shapes]
    weights[-1][1] = -1
    biases = [np.full(2000, 0.5), np.full(1500, 0.5), [1e6, 0.0]]
    net = bnncert.Network.from_arrays(weights, biases)
    row = {"kind": "weights", "place": "layer", "layer": 1, "proof": "computed"}
    return faults(net, [row | {"certified": 2_000_000}])


def two_networks(*sizes: int) -> tuple[bnncert.Network, bnncert.Network]:
    return random_network(*sizes), random_network(*sizes, seed=1)


def equivalence(one: bnncert.Network, two: bnncert.Network, how: str, **details: Any) -> Bomb:
    region = {"region": "box"}
    details = {"verdict": "equal", "classes": None, "excluded": None, "all_scores": True} | details
    details |= {"networks": [one.content_hash, two.content_hash], "how": how, "region": region}
    lo = np.zeros(one.inputs)
    return Bomb(one, [claim("equivalence", details, lo=lo, hi=lo + 1)], two)


def path(**details: Any) -> Bomb:
    """A path that bends at every input, where many neurons change their signs."""
    rng = np.random.default_rng(0)
    net = random_network(2000, 1000, 2)
    details = {"verdict": "robust", "place": None, "target": None} | details
    details |= {"network": net.content_hash, "label": 0, "rivals": [1], "ties": "violation"}
    details |= {"region": {"region": "brightness", "radius": "1"}}
    image = rng.random(2000)
    lo = np.zeros(2000)
    return Bomb(net, [claim("path", details, center=image, clip_lo=lo, clip_hi=lo + 1)])


#: As many faults as fit a line of JSON.
LONG_LIST = [[0, j, i, 0] for j in range(80) for i in range(700)]

OTHERS: Bombs = {
    "explanation": explanation,
    "many_faults": many_faults,
    # The divisions of faults anywhere, for which the signs of all layers are derived again.
    "many_rows": lambda: faults(
        random_network(784, 2000, 2000, 2000, 3),
        [
            {"kind": "weights", "place": "anywhere", "layer": None, "certified": 8}
            | {"proof": "wrong signs"}
        ],
        hi=np.ones(784),
    ),
    "long_list_of_faults": lambda: faults(
        random_network(784, 200, 3),
        [{"kind": "weights", "place": "layer", "layer": 0, "faults": LONG_LIST}],
    ),
    # All pairs of 300 classes, and two networks with many neurons.
    "many_classes": lambda: equivalence(*two_networks(20, 20, 300), "product"),
    "large_product": lambda: equivalence(*two_networks(784, 2000, 2000, 2), "neurons"),
    "path": path,
    "long_place": lambda: path(verdict="not_robust", place="1/" + "7" * 1990, target=0),
}


# -- ordinary sections ------------------------------------------------------------------------


def statement(network: bnncert.Network, hi: float = 1.0, **fields: Any) -> Section:
    given = {"kind": "classification", "label": 0, "ties": "violation"}
    given |= {"rivals": list(range(1, network.classes))}
    fields = {"sign_zero": None, "arithmetic": "real", "property": given} | fields
    fields = {"verdict": "robust", "network": network.content_hash, "region": "box"} | fields
    zero = np.zeros(network.inputs)
    return Section("statement", fields, {"lo": zero - hi, "hi": zero + hi})


def section(name: str, fields: dict[str, Any] | None = None, **arrays: Any) -> Section:
    given = {k: np.asarray(v, dtype="<i4") for k, v in arrays.items()}
    return Section(name, fields or {}, given)


def target() -> Section:
    return Section("target", {"number": 0, "objective": 0})


def repeated_cut() -> Bomb:
    """One inequality with a neuron 60,000 times."""
    net, many = random_network(100, 50, 3), 60_000
    one = [1] * many
    cut = section(
        "cuts", sizes_of_clauses=[many], neurons=[0] * many, signs=one, theta=one,
        unit=[0], sizes=[100], curvature=[1] * 100,
    )  # fmt: skip
    return Bomb(net, [statement(net), target(), cut])


def many_cuts() -> Bomb:
    """64 inequalities of all neurons of a network with many variables."""
    net, cuts, size = random_network(100, 1000, 3), 64, 350
    every = list(range(size)) * cuts
    cut = section(
        "cuts", sizes_of_clauses=[size] * cuts, neurons=every, signs=[1] * len(every),
        theta=[2**30] * len(every), unit=[300] * cuts, sizes=[100] * cuts,
        curvature=[1] * 100 * cuts,
    )  # fmt: skip
    return Bomb(net, [statement(net), target(), cut])


def clashes() -> Bomb:
    """A clash among 4000 open neurons, whose implications are closed."""
    net = random_network(100, 4000, 3)
    one = section("clashes", {"layer": 0}, sizes_of_clauses=[], neurons=[], signs=[], theta=[])
    return Bomb(net, [statement(net), one])


def tree() -> Bomb:
    """A tree of first-layer signs in a ball with many open neurons, of which one flips."""
    size = 3000
    first, last = np.eye(size), np.random.default_rng(0).choice([-1, 1], (2, size))
    net = bnncert.Network.from_arrays([first, last], [np.full(size, 0.5), [3.0 * size, 0.0]])
    zero = np.zeros(size)
    first_section = statement(net, region="l1", radius="1")
    first_section.arrays = {"center": zero}
    leaf = section("tree", variables=[-1])
    return Bomb(net, [first_section, Section("patterns", {"targets": [0]}), leaf])


def wide_tree() -> Bomb:
    """2^19 leaves of a tree with many open neurons."""
    net, depth = random_network(100, 1000, 500, 3), 17
    nodes: list[int] = []

    def grow(level: int) -> None:
        nodes.append(level if level < depth else -1)
        if level < depth:
            grow(level + 1)
            grow(level + 1)

    grow(0)
    leaf = section("tree", variables=nodes)
    return Bomb(net, [statement(net), Section("patterns", {"targets": [0, 1]}), leaf])


def buckets() -> Bomb:
    """Tables of 24 variables with all the clauses that a file may have."""
    size, last = 24, np.random.default_rng(0).choice([-1, 1], (20, 24))
    net = bnncert.Network.from_arrays([np.eye(size), last], [np.full(size, 0.5), np.zeros(20)])
    scopes = [v for k in range(size) for v in range(k, size)]
    order = section("buckets", sizes=range(size, 0, -1), scopes=scopes)
    begin = Section("elimination", {"targets": list(range(19))})
    return Bomb(net, [statement(net), begin, order])


def branched() -> Bomb:
    """A tree of inputs with a million nodes for a clause with a million weights."""
    net = random_network(1000, 900, 3)
    first = statement(net, hi=100.0, grid="float64")
    first.arrays |= {"grid_step": np.ones(1000), "grid_origin": np.zeros(1000)}
    neurons = list(range(900))
    one = section(
        "branched", sizes_of_clauses=[900], neurons=neurons, signs=[1] * 900,
        theta=np.zeros(901 * 2000), nodes=[0] * 1999 + [-1] * 2000, places=[0] * 1999,
    )  # fmt: skip
    return Bomb(net, [first, one])


def long_point() -> Bomb:
    """A counterexample with a common denominator of 2^16 bits."""
    net = random_network(784, 1000, 3)
    first = statement(net, verdict="not_robust")
    exact = ["0"] * 784
    for k, prime in enumerate((3, 5, 7, 11, 13)):
        exact[k] = f"1/{prime ** int(13_000 / np.log2(prime))}"
    point = Section("point", {"target": 0, "exact": exact}, {"point": np.zeros(784)})
    return Bomb(net, [first, point])


def tied_point() -> Bomb:
    """A counterexample with ties in all neurons."""
    size = 1000
    net = bnncert.Network.from_arrays(
        [np.eye(size), np.ones((2, size))], [np.zeros(size), [0.0, 0.0]], sign_zero="either"
    )
    first = statement(net, verdict="not_robust")
    return Bomb(net, [first, Section("point", {"target": 0}, {"point": np.zeros(size)})])


def packed() -> Bomb:
    """Zeros that unpack to gigabytes."""
    net = random_network(20, 20, 3)
    zeros = np.zeros(2**22, dtype="|i1")
    arrays = dict.fromkeys(("sizes_of_clauses", "neurons", "signs", "theta"), zeros[: 2**20])
    many = [Section("clauses", {"layer": 0}, arrays)] * 40
    return Bomb(net, [statement(net), *many])


ORDINARY: Bombs = {
    make.__name__: make
    for make in (
        *(repeated_cut, many_cuts, clashes, tree, wide_tree, buckets, branched, long_point),
        *(tied_point, packed),
    )
}

#: All of them, by what they are about.
GROUPS: dict[str, Bombs] = {
    "copies": COPIES,
    "unions": UNIONS,
    "counts": COUNTS,
    "others": OTHERS,
    "ordinary": ORDINARY,
}
