"""The claim of a certificate: network, region and property, in exact numbers and in words.

The claim is not proved here.  Claims that would need no proof are rejected: a property without
rivals or conditions, and a region without inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias, get_args

from bnncert.arrays import FloatArray, numbers_hash
from bnncert.kernel.container import RejectedError, Section, UnreadableError, exactly
from bnncert.kernel.function import Function
from bnncert.kernel.space import Space, has_input, read_space
from bnncert.model.network import Network

Zero: TypeAlias = Literal["plus", "minus", "either"]

#: Conditions that are written out in words.
MOST_WORDS = 4

SIGN_OF_ZERO = {
    "plus": "sign(0) = +1",
    "minus": "sign(0) = -1",
    "either": "sign(0) = +1 or -1, for each neuron on its own",
    "mixed": "sign(0) as the model states it for each layer",
}

TIES = {"violation": "a tie is a violation", "robust": "a tie is not a violation"}


@dataclass(frozen=True)
class Report:
    """The statement of an accepted certificate in words, and the size and time of the check."""

    statement: str
    verdict: str
    targets: int
    clauses: int
    leaves: int
    seconds: float
    #: The value of sign(0), the arithmetic, the meaning of a tie, the data box, and whether the
    #: region is shown to have an input.
    assumptions: dict[str, str]
    #: The property as the file states it.
    property: dict[str, Any]
    #: What the certificate is about: the SHA-256 of the network, of the `other` one if there are
    #: two, and of the `centre` of its region, or of the bounds of a `box` or `polytope`; of the
    #: `data_box` and `grid` if inputs differ in them.
    about: dict[str, str]
    #: The centre itself, if there is one.
    centre: FloatArray | None = field(repr=False, compare=False)


def report_of(
    text: str, networks: dict[str, Network], named: dict[str, FloatArray], **rest: Any
) -> Report:
    """Write the report of an accepted certificate, whose other fields are `rest`.

    The statement `text` is followed by the hashes of the networks and of the named numbers.
    """
    about = {name: network.content_hash for name, network in networks.items()}
    about |= {name: numbers_hash(numbers) for name, numbers in named.items()}
    words = ", ".join(f"{name} {digest}" for name, digest in about.items())
    return Report(f"{text}; SHA-256: {words}", about=about, centre=named.get("centre"), **rest)


@dataclass(frozen=True)
class ScoreFunction:
    """A function sum_k scores_k (score k) + constant that has to be positive, or not negative."""

    scores: dict[int, Fraction]
    constant: Fraction
    tie_is_fine: bool

    def of(self, network: Network) -> Function:
        """Write it as a function of the last layer."""
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
    """The first section: the claim of the certificate.

    The property holds at an input if in every target some function is positive.
    """

    verdict: str
    space: Space
    float32: bool
    targets: list[list[ScoreFunction]]
    text: str
    assumptions: dict[str, str]
    property: dict[str, Any]
    #: The counterexample, after it has been checked.
    point: Sequence[Fraction] = ()

    def report(self, network: Network, clauses: int, leaves: int, seconds: float) -> Report:
        """Write the report of a claim about a network that has been checked."""
        return report_of(
            self.text,
            {"network": network},
            self.space.named,
            verdict=self.verdict,
            targets=len(self.targets),
            clauses=clauses,
            leaves=leaves,
            seconds=seconds,
            assumptions=self.assumptions,
            property=self.property,
        )

    @staticmethod
    def read(section: Section, network: Network) -> Statement:
        """Read the claim; it has to be about this network, with this value of sign(0)."""
        if section.name != "statement":
            raise UnreadableError("the file does not begin with a statement")
        verdict = section.text("verdict", ("robust", "not_robust"))
        _refuse_other_network(section, network)
        arithmetic = section.text("arithmetic", ("real", "float32"))
        space, place, box = read_space(section, network)
        if arithmetic == "float32" and not space.has_float32():
            raise RejectedError("the region has no input of float32 numbers")
        targets, words, ties = read_property(section.fields.get("property"), network)
        assumptions = {
            "sign_zero": network.sign_zero,
            "arithmetic": arithmetic,
            "ties": ties,
            "data_box": box,
            "inputs": "shown",
        }
        named = [f"{arithmetic} arithmetic", SIGN_OF_ZERO[network.sign_zero]]
        named += [TIES[ties]] if ties in TIES else []
        if not has_input(section, space, arithmetic == "float32") and verdict == "robust":
            assumptions["inputs"] = "not shown"
            named.append("not shown: that the region has an input")
        text = f"for every input in {place}: {words} ({', '.join(named)})"
        if verdict == "not_robust":
            text = f"some input in {place} violates: {words} ({', '.join(named)})"
        claim = section.fields["property"]
        float32 = arithmetic == "float32"
        return Statement(verdict, space, float32, targets, text, assumptions, claim)


def _refuse_other_network(section: Section, network: Network) -> None:
    """Reject a claim about another network, or about another value of sign(0)."""
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
                f"{SIGN_OF_ZERO[network.sign_zero]} (use --sign-zero {choice})"
            )
    raise RejectedError("it is about another network")


# -- the property -----------------------------------------------------------------------------


def classification(label: Any, rivals: Any, ties: Any) -> dict[str, Any]:
    """State that the score of a class is above those of others, as a file has it."""
    return {"kind": "classification", "label": label, "rivals": rivals, "ties": ties}


def read_property(value: Any, network: Network) -> tuple[list[list[ScoreFunction]], str, str]:
    """Read the functions of all targets, the property in words, and the meaning of a tie."""
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
            raise RejectedError("a target does not depend on the scores")
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
    """Write a number exactly, or rounded if the text would be long."""
    text = str(number)
    return text if len(text) <= 20 else f"about {float(number):.9g}"
