"""What a certificate claims: network, region and property, in exact numbers and in words.

The claim itself is not checked here.  Claims that would need no proof are refused: a property
without rivals or conditions, and a region without inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from bnncert.checking.container import RejectedError, Section, UnreadableError, exactly
from bnncert.checking.function import Function, Objects, scaled
from bnncert.checking.grid import GRID_ARRAYS, StatedGrid
from bnncert.network import Network

Floats = npt.NDArray[np.float64]
Zero: TypeAlias = Literal["plus", "minus", "either"]

#: Numbers of a polytope's inequalities that are not 0, at most, and bits between the largest and
#: the smallest digit of a region's numbers: both bound the integers that are made of them.
MOST_COEFFICIENTS, MOST_BITS = 2**19, 800

#: Conditions that are written out in words.
MOST_WORDS = 4

SIGN_OF_ZERO = {
    "plus": "sign(0) = +1",
    "minus": "sign(0) = -1",
    "either": "sign(0) = +1 or -1, for each neuron on its own",
    "mixed": "sign(0) as the model states it for each layer",
}

TIES = {"violation": "a tie is a violation", "robust": "a tie is not a violation"}

#: The fields, the arrays and the optional arrays that each kind of region has in the statement.
BALL = (("radius",), ("center",), ("clip_lo", "clip_hi"))
REGIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "box": ((), ("lo", "hi"), ()),
    "linf": BALL,
    "l2": BALL,
    "l1": BALL,
    "polytope": (("inequalities",), ("lo", "hi", "matrix", "right"), ("inside",)),
}


@dataclass(frozen=True)
class Report:
    """What a certificate proves, in words, and what it took.

    Attributes
    ----------
    assumptions
        The value of sign(0), the arithmetic, what a tie is, the data box, and whether the region
        is shown to have an input at all.
    property
        The property as the file has it.
    """

    statement: str
    verdict: str
    targets: int
    clauses: int
    leaves: int
    seconds: float
    assumptions: dict[str, str]
    property: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Space:
    """The region: a box, optionally a ball inside it and inequalities matrix.x <= right.

    The numbers of box and ball are integers in units of 2^-shift.  On a grid, only grid points
    belong to the region, and the box ends at the outermost of them.
    """

    lower: Objects
    upper: Objects
    norm: str | None
    center: Objects
    radius: int
    shift: int
    matrix: Floats
    right: Floats
    grid: StatedGrid | None = None

    def rationals(self, numbers: Objects) -> list[Fraction]:
        """Return numbers of the box or the ball as rationals."""
        return [Fraction(v, 1 << self.shift) for v in numbers.tolist()]

    def contains(self, point: list[Fraction]) -> bool:
        """Whether an exact point lies in the region."""
        lower, upper = self.rationals(self.lower), self.rationals(self.upper)
        if self.grid is not None and not self.grid.contains(point):
            return False
        if not all(a <= x <= b for a, x, b in zip(lower, point, upper, strict=True)):
            return False
        for row, limit in zip(self.matrix, self.right.tolist(), strict=True):
            used = np.flatnonzero(row).tolist()
            if sum(Fraction(row[k]) * point[k] for k in used) > Fraction(limit):
                return False
        center, radius = self.rationals(self.center), Fraction(self.radius, 1 << self.shift)
        gaps = [abs(x - c) for x, c in zip(point, center, strict=False)]
        if self.norm == "l2":
            return sum(g * g for g in gaps) <= radius**2
        return self.norm is None or sum(gaps) <= radius

    def has_float32(self) -> bool:
        """Whether an input of float32 numbers lies in a box or a ball (inequalities aside)."""
        if self.grid is not None:
            return self.grid.single and self.has_grid_point()
        center = self.center if self.center.size else self.lower
        nearest = np.minimum(np.maximum(center, self.lower), self.upper)
        numbers = (self.rationals(v) for v in (nearest, self.lower, self.upper))
        # Every coordinate is as near to the centre as it can be.
        found = [_nearest_float32(*entry) for entry in zip(*numbers, strict=True)]
        plain = replace(self, matrix=self.matrix[:0], right=self.right[:0])
        point = [x for x in found if x is not None]
        return len(point) == len(found) and plain.contains(point)

    def has_grid_point(self) -> bool:
        """Whether the grid point nearest to the centre lies in the region."""
        assert self.grid is not None
        lower, upper = self.rationals(self.lower), self.rationals(self.upper)
        center = self.rationals(self.center) if self.center.size else lower
        return self.contains(self.grid.nearest(center, lower, upper))


@dataclass(frozen=True)
class ScoreFunction:
    """A function sum_k scores_k (score k) + constant that has to be positive, or not negative."""

    scores: dict[int, Fraction]
    constant: Fraction
    tie_is_fine: bool

    def of(self, network: Network) -> Function:
        """Return it as a function of the last layer."""
        return Function.of(network, self.scores, self.constant, self.tie_is_fine)

    @property
    def words(self) -> str:
        """The inequality by which it fails."""
        terms = [(c, f"score {k}") for k, c in self.scores.items()]
        terms += [(self.constant, "")] if self.constant or not terms else []
        text = ""
        for c, name in terms:
            size = name if name and abs(c) == 1 else f"{_short(abs(c))} {name}".rstrip()
            text += f" {'-' if c < 0 else '+'} {size}" if text else f"{'-' if c < 0 else ''}{size}"
        return f"{text} {'<' if self.tie_is_fine else '<='} 0"


@dataclass(frozen=True, eq=False)
class Statement:
    """The first section: what the certificate claims.

    The property holds where in every target some function is positive.
    """

    verdict: str
    space: Space
    float32: bool
    targets: list[list[ScoreFunction]]
    text: str
    assumptions: dict[str, str]
    property: dict[str, Any]

    def report(self, clauses: int, leaves: int, seconds: float) -> Report:
        """Return what is known once the claim has been checked."""
        return Report(
            self.text,
            self.verdict,
            len(self.targets),
            clauses,
            leaves,
            seconds,
            self.assumptions,
            self.property,
        )

    @staticmethod
    def read(section: Section, network: Network) -> Statement:
        """Read the claim; it has to be about this network, with this value of sign(0)."""
        if section.name != "statement":
            raise UnreadableError("the file does not begin with a statement")
        verdict = section.text("verdict", ("robust", "not_robust"))
        _refuse_other_network(section, network)
        arithmetic = section.text("arithmetic", ("real", "float32"))
        space, place, box = _space(section, network)
        if arithmetic == "float32" and not space.has_float32():
            raise RejectedError("the region has no input of float32 numbers")
        targets, words, ties = _property(section.fields.get("property"), network)
        assumptions = {
            "sign_zero": network.sign_zero,
            "arithmetic": arithmetic,
            "ties": ties,
            "data_box": box,
            "inputs": "shown",
        }
        named = [f"{arithmetic} arithmetic", SIGN_OF_ZERO[network.sign_zero]]
        named += [TIES[ties]] if ties in TIES else []
        if verdict == "robust" and not _has_input(section, space, arithmetic == "float32"):
            assumptions["inputs"] = "not shown"
            named.append("not shown: that the region has an input")
        text = f"for every input in {place}: {words} ({', '.join(named)})"
        if verdict == "not_robust":
            text = f"some input in {place} violates: {words} ({', '.join(named)})"
        claim = section.fields["property"]
        float32 = arithmetic == "float32"
        return Statement(verdict, space, float32, targets, text, assumptions, claim)


def _refuse_other_network(section: Section, network: Network) -> None:
    """Refuse a claim about another network, or about another value of sign(0)."""
    stated, choices = section.text("network"), get_args(Zero)
    if section.fields.get("sign_zero") is not None:
        choices = (section.text("sign_zero", choices),)
    if stated == network.content_hash and (len(choices) > 1 or choices == (network.sign_zero,)):
        if section.fields.get("sizes", list(network.sizes)) != list(network.sizes):
            raise RejectedError("it states other sizes than those of the network")
        return
    for choice in choices:
        if stated == network.with_sign_zero(choice).content_hash:
            raise RejectedError(
                f"it takes {SIGN_OF_ZERO[choice]}, and the network has "
                f"{SIGN_OF_ZERO[network.sign_zero]} (--sign-zero {choice} checks it as it is meant)"
            )
    raise RejectedError("it is about another network")


# -- the region -------------------------------------------------------------------------------


def _space(section: Section, network: Network) -> tuple[Space, str, str]:
    """Return the region, exactly, its description, and that of the data box."""
    kind, size = section.text("region", tuple(REGIONS)), network.inputs
    fields, needed, optional = REGIONS[kind]
    # What belongs to another kind of region could be taken for a part of the claim.
    gridded = kind != "polytope" and "grid" in section.fields
    fields, needed = (*fields, *["grid"] * gridded), (*needed, *GRID_ARRAYS * gridded)
    if section.fields.keys() & {"radius", "inequalities", "grid"} != set(fields):
        raise UnreadableError(f"section statement: the fields are not those of region {kind}")
    if not set(needed) <= section.arrays.keys() <= {*needed, *optional}:
        raise UnreadableError(f"section statement: the arrays are not those of region {kind}")
    names = [k for k in section.arrays if k not in ("matrix", "right", "inside", *GRID_ARRAYS)]
    given = {name: section.floats(name, size) for name in names}
    matrix, right = np.zeros((0, size)), np.zeros(0)
    if kind == "polytope":
        right = section.floats("right", section.number("inequalities"))
        matrix = section.floats("matrix", right.size * size).reshape(right.size, size)
        if np.count_nonzero(matrix) > MOST_COEFFICIENTS:
            raise RejectedError(f"the inequalities have more than {MOST_COEFFICIENTS} coefficients")
    radius = _radius(section.fields["radius"]) if "radius" in fields else 0.0
    known = ("clip_lo", "clip_hi", "lo", "hi", "center")
    grid = StatedGrid.read(section, size, [given[k] for k in known if k in given])
    if grid is not None:
        given |= grid.box(given, radius)
    _refuse_wide(np.concatenate([*given.values(), [radius]]))
    _refuse_wide(np.concatenate([matrix.ravel(), right]))
    whole, shift = scaled(np.concatenate([*given.values(), [radius]]))
    exact = dict(zip(given, whole[:-1].reshape(len(given), size), strict=True))
    if "center" in exact:
        space = _ball(kind, whole[-1], exact, shift)
        box = _data_box(given.get("clip_lo"), given.get("clip_hi"), network)
        words = f"the {kind} ball of radius {radius!r} {box}"
        words += "" if radius else ", which is one point"
    else:
        none = whole[:0]
        space = Space(exact["lo"], exact["hi"], None, none, 0, shift, matrix, right)
        bounds = _interval(given["lo"], given["hi"])
        box = f"the region's own bounds {bounds}"
        words = f"a box in {size} dimensions with bounds {bounds}"
        words = f"a polytope of {right.size} inequalities in {words}" if right.size else words
    if grid is not None:
        lower, upper = exact["grid_lo"], exact["grid_hi"]
        if space.norm is not None:  # Its centre need not be on the grid.
            lower, upper = np.minimum(lower, space.center), np.maximum(upper, space.center)
        space = replace(space, lower=lower, upper=upper, grid=grid)
        words = f"{words} {grid.words}"
    if np.any(space.lower > space.upper):
        raise RejectedError("the region is empty")
    return space, words, box


def _ball(kind: str, radius: int, exact: dict[str, Objects], shift: int) -> Space:
    center = exact["center"]
    lower, upper = center - radius, center + radius
    lower = np.maximum(lower, exact.get("clip_lo", lower))
    upper = np.minimum(upper, exact.get("clip_hi", upper))
    if kind != "linf" and np.any((center < lower) | (center > upper)):
        raise RejectedError("the centre of the ball lies outside the data box")
    none = np.zeros((0, center.size))
    norm = None if kind == "linf" else kind
    return Space(lower, upper, norm, center, radius, shift, none, none[:, 0])


def _radius(value: Any) -> float:
    """Return a radius that is a float, as they all are."""
    exact = exactly(value)
    try:
        radius = float(exact)
    except OverflowError:
        radius = np.inf
    if not 0 <= radius < np.inf or Fraction(radius) != exact:
        raise UnreadableError("the radius is negative or not a float64 number")
    return radius


def _refuse_wide(numbers: Floats) -> None:
    """Refuse floats that take too many bits over one power of two."""
    _, exponents = np.frexp(numbers[numbers != 0])
    if exponents.size and int(exponents.max() - exponents.min()) + 53 > MOST_BITS:
        raise RejectedError("the region's numbers differ too much in size")


def _data_box(lo: Floats | None, hi: Floats | None, network: Network) -> str:
    """Say which data box a ball is cut with, and whether it is the network's own."""
    own = _interval(network.input_lo, network.input_hi)
    mine = _interval(lo, hi)
    if lo is None and hi is None:
        return (
            "without a data box" if own is None else f"not limited to the network's data box {own}"
        )
    if own is None:
        return f"inside the data box {mine}, while the network states none"
    same = _equal(lo, network.input_lo) and _equal(hi, network.input_hi)
    return (
        f"inside the network's data box {own}"
        if same
        else (f"inside the data box {mine}, not the network's own {own}")
    )


def _equal(a: Floats | None, b: Floats | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, np.broadcast_to(np.ravel(b), a.shape))


def _interval(lo: Floats | None, hi: Floats | None) -> str | None:
    """Return bounds in words, the outermost ones where inputs differ."""
    if lo is None and hi is None:
        return None
    low, high = (
        np.ravel(v) if v is not None else np.array([s * np.inf]) for v, s in ((lo, -1), (hi, 1))
    )
    equal = np.all(low == low[:1]) and np.all(high == high[:1])
    return f"[{low.min():.9g}, {high.max():.9g}]{'' if equal else ' (less for some inputs)'}"


def _nearest_float32(x: Fraction, low: Fraction, high: Fraction) -> Fraction | None:
    """Return a float32 number next to x within bounds, the nearest if there is one."""
    with np.errstate(over="ignore"):
        first = np.float32(float(x))
        beside = [np.nextafter(first, np.float32(s * np.inf)) for s in (-1, 1)]
    found = [Fraction(float(v)) for v in (first, *beside) if np.isfinite(v)]
    return min((v for v in found if low <= v <= high), key=lambda v: abs(v - x), default=None)


def _has_input(section: Section, space: Space, float32: bool) -> bool:
    """Whether the region has an input: boxes and balls do; of a polytope one has to be given."""
    if space.grid is not None:
        return space.has_grid_point()
    if not space.right.size:
        return True
    if "inside" not in section.arrays:
        return False
    point = section.floats("inside", len(space.lower))
    if not space.contains([Fraction(v) for v in point.tolist()]):
        raise RejectedError("the input that shows that the region is not empty lies outside")
    return not float32 or bool(np.all(point.astype(np.float32) == point))


# -- the property -----------------------------------------------------------------------------


def _property(value: Any, network: Network) -> tuple[list[list[ScoreFunction]], str, str]:
    """Return the functions of all targets, the property in words, and what a tie is."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "classification" and value.keys() == {"kind", "label", "rivals", "ties"}:
        return _classification(value["label"], value["rivals"], value["ties"], network)
    if kind != "targets" or value.keys() != {"kind", "targets"}:
        raise UnreadableError("section statement: no property, or one of an unknown kind")
    if not isinstance(value["targets"], list) or not value["targets"]:
        raise UnreadableError("section statement: a property without targets")
    targets = []
    for entry in value["targets"]:
        if not isinstance(entry, list) or not entry:
            raise UnreadableError("section statement: a target without functions")
        targets.append([_objective(o, network) for o in entry])
        if not any(c for o in targets[-1] for c in o.scores.values()):
            raise RejectedError("a target says nothing about the scores")
    shown = [" and ".join(o.words for o in t[:MOST_WORDS]) for t in targets[:MOST_WORDS]]
    longer = len(targets) > MOST_WORDS or any(len(t) > MOST_WORDS for t in targets)
    words = "; ".join(shown) + ("; and so on" if longer else "")
    return targets, f"none of {len(targets)} conditions on the scores holds: {words}", "as stated"


def _classification(
    label: Any, rivals: Any, ties: Any, network: Network
) -> tuple[list[list[ScoreFunction]], str, str]:
    if not isinstance(rivals, list) or not all(type(k) is int for k in (label, *rivals)):
        raise UnreadableError("section statement: label and rivals are not classes")
    if ties not in TIES:
        raise UnreadableError("section statement: ties is neither violation nor robust")
    if not all(0 <= k < network.classes for k in (label, *rivals)):
        raise RejectedError("the property names a class that the network does not have")
    if not rivals or len({label, *rivals}) != 1 + len(rivals):
        raise RejectedError("there are no rivals, or one is the label itself or occurs twice")
    one, fine = Fraction(1), ties == "robust"
    targets = [[ScoreFunction({label: one, k: -one}, Fraction(0), fine)] for k in rivals]
    names = f"class{'es' if len(rivals) > 1 else ''} {', '.join(map(str, rivals))}"
    if len(rivals) == network.classes - 1 > 1:
        names = "all other classes"
    return (
        targets,
        f"class {label} scores {'at least as much as' if fine else 'more than'} {names}",
        ties,
    )


def _objective(value: Any, network: Network) -> ScoreFunction:
    if not isinstance(value, dict) or not isinstance(value.get("scores"), dict):
        raise UnreadableError("section statement: an objective without scores")
    if not isinstance(value.get("tie_is_fine"), bool):
        raise UnreadableError("section statement: an objective without tie_is_fine")
    if value.keys() - {"scores", "constant", "tie_is_fine"}:
        raise UnreadableError("section statement: an objective with more than it can have")
    scores = {}
    for key, c in value["scores"].items():
        if not (key.isascii() and key.isdecimal() and str(int(key[:9])) == key):
            raise RejectedError("the property names a score that the network does not have")
        scores[int(key)] = exactly(c)
    if any(k >= network.classes for k in scores):
        raise RejectedError("the property names a score that the network does not have")
    constant = exactly(value.get("constant"))
    if constant and scores and not network.output.gain_is_one:
        raise RejectedError("scores with an irrational scale are compared with a number")
    return ScoreFunction(scores, constant, value["tie_is_fine"])


def _short(number: Fraction) -> str:
    """Return a number exactly, or if that is long nearly."""
    text = str(number)
    return text if len(text) <= 20 else f"about {float(number):.9g}"
