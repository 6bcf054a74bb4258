"""Random questions of every kind; the same seed makes the same questions.

The networks are tiny and time limits are lifted or generous, so that no answer depends on the
speed of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from benchmarks.record.answers import JSON_FILE, Question
from benchmarks.record.files import (
    Files,
    Generator,
    changed,
    query_text,
    random_model,
    random_points,
)

Words: TypeAlias = list[str]

METHODS = (
    *("auto", "attack", "interval", "lp", "sdp", "bab", "milp", "propagation", "elimination"),
    *("minp", "sample", "sdp-standard", "sdp-tight-plain", "sdp-tight", "sdp-tight-pairwise"),
    "sdp-order2",
)
NORMS = ("linf", "l2", "l1", "l0")
#: Options of methods that `verify` has.
VERIFY_OPTIONS = ("--processes",)
SHAPES = ("brightness", "contrast", "patch", "shift")
SIGN_ZERO = ("plus", "minus", "either")

JSON = ["--json", JSON_FILE]
UNLIMITED = ["--timeout", "none"]
#: One process: others are started after some time only, which depends on the machine.
ALONE = ["--processes", "1"]

#: Options that some methods read, with their values.
OWN_OPTIONS = {
    "--processes": (("auto", "bab", "propagation"), ("1",)),
    "--coupling": (("auto", "sdp", "bab"), ("on", "off")),
    "--form": (("milp", "minp"), ("lattice", "soft")),
    "--samples": (("sample",), ("50", "500")),
    "--solver": (("sdp",), ("structured", "clarabel", "low-rank")),
    "--sparsity": (("sdp-standard", "sdp-tight", "sdp-tight-plain"), ("chordal", "dense")),
}


class Draft:
    """A question in the making: its generator, its files and a network among them."""

    def __init__(self, rng: Generator, *, inputs: int = 0, image: bool = False) -> None:
        self.rng, self.files = rng, Files()
        self.model = random_model(rng, inputs=inputs, image=image)
        self.network = self.files.network(rng, self.model)

    def chance(self, share: float) -> bool:
        """Return True with that probability."""
        return bool(self.rng.random() < share)

    def one_of(self, *values: str) -> str:
        """Return one of the values."""
        return values[int(self.rng.integers(len(values)))]

    def sometimes(self, share: float, *words: str) -> Words:
        """Return the words with that probability, else none."""
        return list(words) if self.chance(share) else []

    def point(self) -> Words:
        """Add points, or an image; return the words that choose one."""
        if self.model.image is not None and self.chance(0.5):
            return ["--input", self.files.picture(self.rng, self.model, "x.png"), *self.scale()]
        count = int(self.rng.integers(1, 4))
        words = ["--input", self.files.points(self.rng, self.model, count)]
        return [*words, *(["--index", str(self.rng.integers(count))] if count > 1 else [])]

    def radius(self, norm: str) -> str:
        """Return a radius that is a moderate part of the data box."""
        width = self.model.hi - self.model.lo
        if norm == "l0":
            return str(self.rng.integers(0, 3))
        if norm in ("patch", "shift"):
            return "1"
        if self.model.pixel_step is not None and not self.is_onnx and self.chance(0.4):
            return f"{int(self.rng.integers(1, 60))}px"
        share = float(self.rng.integers(1, 17)) / 32
        return f"{share * (1.0 if norm == 'contrast' else width):g}"

    def scale(self) -> Words:
        """Return the scale of pixels, which ONNX files do not state."""
        words = ["--scale", f"{self.model.lo:g}", f"{self.model.hi:g}"]
        return self.sometimes(0.95 if self.is_onnx else 0.05, *words)

    @property
    def is_onnx(self) -> bool:
        """Whether the network's file states neither a data box nor a pixel step."""
        return self.network.endswith(".onnx")

    def box(self) -> Words:
        """Return the data box, which ONNX files do not state."""
        if self.is_onnx:
            return ["--clip", f"{self.model.lo:g}", f"{self.model.hi:g}"]
        return self.sometimes(0.05, "--clip", f"{self.model.lo:g}", f"{self.model.hi + 1:g}")

    def grid(self, share: float) -> Words:
        """Return a coarse grid, or that of the pixels."""
        width = self.model.hi - self.model.lo
        words = ["--grid", f"{width / 8:g}"]
        if self.model.pixel_step is not None and not self.is_onnx:
            words = ["--grid", "1px"]
        return self.sometimes(share, *words)

    def region(self, norms: tuple[str, ...] = NORMS, grid: float = 0.2) -> tuple[str, Words]:
        """Return a norm and the words of a region around a point."""
        norm = self.one_of(*norms)
        words = [*self.point(), "--norm", norm, "--radius", self.radius(norm), *self.box()]
        if norm == "l0":
            words += self.sometimes(0.3, "--within", f"{(self.model.hi - self.model.lo) / 4:g}")
        if norm == "patch":
            words += self.sometimes(0.5, "--value", f"{self.model.hi:g}")
        return norm, [*words, *([] if norm in ("contrast", "shift") else self.grid(grid))]

    def choices(self) -> Words:
        """Return options about classes, ties and sign(0)."""
        classes = ",".join(map(str, self.rng.permutation(self.model.classes)[:2]))
        labels = self.one_of(*map(str, range(self.model.classes)))
        return [
            *self.sometimes(0.15, "--rivals", self.one_of("runner-up", classes, "0")),
            *self.sometimes(0.2, "--ties", "robust"),
            *self.sometimes(0.15, "--sign-zero", self.one_of(*SIGN_ZERO)),
            *self.sometimes(0.1, "--label", labels),
            *self.sometimes(0.1, "--seed", str(self.rng.integers(5))),
        ]

    def checked(self, words: Words, share: float = 0.4, *model: str) -> list[Words]:
        """Return a command line, perhaps with a certificate that is checked after it."""
        if not self.chance(share):
            return [words]
        check = ["check", "proof.bnncert", "--model", self.network, *model, *JSON]
        if "--sign-zero" in words:
            place = words.index("--sign-zero")
            check += words[place : place + 2]
        return [[*words, "--certificate", "proof.bnncert"], check]

    def method(self, name: str, *options: str) -> Words:
        """Return a method with some of its options, and seldom with one of another method."""
        words = ["--method", name]
        for option in options:
            owners, values = OWN_OPTIONS[option]
            share = 1.0 if option == "--processes" else 0.25
            if self.chance(share if name in owners else 0.01):
                words += [option, self.one_of(*values)]
        return words

    def question(self, kind: str, *commands: Words) -> Question:
        """Return the question."""
        return Question(kind, self.files.content, [list(map(str, c)) for c in commands])


# -- questions about one network -----------------------------------------------------------------


def verify(rng: Generator) -> Question:
    draft = Draft(rng)
    method = "auto" if draft.chance(0.35) else draft.one_of(*METHODS)
    norm, region = draft.region()
    words = ["verify", draft.network, *region, *draft.choices()]
    words += draft.method(method, *VERIFY_OPTIONS)
    words += draft.sometimes(0.1, "--arithmetic", "float32")
    words += draft.sometimes(0.1, "--witness", "result.txt")
    words += draft.sometimes(0.15, "--save-counterexample", "found.npy")
    words += draft.sometimes(0.1, draft.one_of("-q", "-v"))
    commands = draft.checked([*words, *UNLIMITED, *JSON])
    return draft.question(f"verify {norm} {method}", *commands)


def shape(rng: Generator) -> Question:
    draft = Draft(rng, image=True)
    norm, region = draft.region(SHAPES)
    words = ["verify", draft.network, *region, *draft.choices(), *ALONE, *UNLIMITED, *JSON]
    words += draft.sometimes(0.2, "--save-counterexample", "found.png")
    return draft.question(f"verify {norm}", *draft.checked(words))


def image(rng: Generator) -> Question:
    draft = Draft(rng, image=True)
    method = draft.one_of("auto", "bab", "propagation", "milp")
    norm, region = draft.region(grid=0.5)
    words = ["verify", draft.network, *region, *draft.method(method, *VERIFY_OPTIONS)]
    words += [*UNLIMITED, *JSON]
    words += draft.sometimes(0.3, "--save-counterexample", "found.png")
    return draft.question(f"verify image {norm}", *draft.checked(words))


def query(rng: Generator) -> Question:
    draft = Draft(rng)
    (point,) = random_points(rng, draft.model, 1)
    radius = float(rng.integers(1, 17)) / 32 * (draft.model.hi - draft.model.lo)
    name = draft.files.add("query.vnnlib", query_text(rng, draft.model, point, radius))
    method = "auto" if draft.chance(0.5) else draft.one_of(*METHODS)
    words = ["verify", draft.network, name, *draft.method(method, *VERIFY_OPTIONS)]
    words += [*UNLIMITED, *JSON]
    words += draft.sometimes(0.3, "--witness", "result.txt")
    return draft.question(f"verify query {method}", *draft.checked(words))


def bound(rng: Generator) -> Question:
    draft = Draft(rng)
    method = draft.one_of(*METHODS)
    norm, region = draft.region()
    words = ["bound", draft.network, *region, *draft.method(method, *OWN_OPTIONS)]
    return draft.question(f"bound {norm} {method}", [*words, *UNLIMITED, *JSON])


def radius(rng: Generator) -> Question:
    draft = Draft(rng)
    norm = draft.one_of("linf", "l2", "l1")
    words = ["radius", draft.network, *draft.point(), "--norm", norm, *draft.box()]
    words += draft.choices()
    width = draft.model.hi - draft.model.lo
    words += draft.sometimes(0.3, "--max", f"{width / 2:g}")
    words += ["--tolerance", f"{width / 16:g}"] if draft.chance(0.5) else []
    method = draft.one_of("auto", "auto", "bab", "propagation", "interval")
    words += draft.method(method, "--processes")
    return draft.question(f"radius {norm}", [*words, *UNLIMITED, *JSON])


def smallest(rng: Generator) -> Question:
    draft = Draft(rng, image=draft_image(rng))
    norm = draft.one_of(*NORMS)
    words = ["radius", draft.network, *draft.point(), "--norm", norm, "--exact", *draft.box()]
    words += draft.grid(1.0 if norm != "l0" else 0.5)
    words += [*draft.choices(), *ALONE, *UNLIMITED, *JSON]
    return draft.question(f"radius exact {norm}", *draft.checked(words))


def draft_image(rng: Generator) -> bool:
    return bool(rng.random() < 0.3)


def shape_radius(rng: Generator) -> Question:
    draft = Draft(rng, image=True)
    norm = draft.one_of(*SHAPES)
    words = ["radius", draft.network, *draft.point(), "--norm", norm, *draft.box()]
    return draft.question(f"radius {norm}", [*words, *ALONE, *UNLIMITED, *JSON])


def explain(rng: Generator) -> Question:
    draft = Draft(rng, image=draft_image(rng))
    words = ["explain", draft.network, *draft.point(), *draft.box(), *draft.grid(0.3)]
    words += draft.sometimes(0.4, "--radius", draft.radius("linf"))
    words += draft.sometimes(0.2, "--ties", "robust")
    words += draft.sometimes(0.2, "--results", "results.sqlite")
    if draft.model.image is not None:
        words += draft.sometimes(0.4, "--picture", "picture.png")
    commands = draft.checked([*words, *ALONE, *UNLIMITED, *JSON])
    return draft.question("explain", *commands)


def faults(rng: Generator) -> Question:
    draft = Draft(rng, inputs=int(rng.integers(2, 4)))
    words = ["faults", draft.network, *draft.point(), *draft.box()]
    if draft.chance(0.4):
        norm = draft.one_of("linf", "linf", "l2", "l1", "l0")
        words += ["--norm", norm, "--radius", draft.radius(norm), *draft.grid(0.2)]
    words += draft.sometimes(0.4, "--max", str(rng.integers(1, 4)))
    words += draft.sometimes(0.4, "--layer", str(rng.integers(1, len(draft.model.weights) + 1)))
    words += draft.sometimes(0.2, "--ties", "robust")
    commands = draft.checked([*words, *ALONE, *UNLIMITED, *JSON])
    return draft.question("faults", *commands)


def count(rng: Generator) -> Question:
    draft = Draft(rng)
    norm, region = draft.region(("linf", "l0"), grid=0.95)
    words = ["count", draft.network, *region, *draft.choices()]
    words += ["--samples", draft.one_of("0", "200", "1000")]
    words += draft.sometimes(0.2, "--confidence", "0.9")
    return draft.question(f"count {norm}", *draft.checked([*words, *UNLIMITED, *JSON]))


def compare(rng: Generator) -> Question:
    draft = Draft(rng)
    other = changed(rng, draft.model) if draft.chance(0.7) else draft.model
    second = draft.files.network(rng, other, "other")
    words = ["compare", draft.network, second]
    about = draft.one_of("all", "ball", "data")
    if about == "ball":
        words += draft.region()[1]
    elif about == "data":
        words += ["--data", draft.files.points(rng, draft.model, 5), *draft.box()]
    else:
        words += [*draft.box(), *draft.grid(0.3)]
    words += draft.sometimes(0.2, "--sign-zero", draft.one_of(*SIGN_ZERO))
    commands = draft.checked([*words, *UNLIMITED, *JSON], 0.4, "--model", second)
    return draft.question(f"compare {about}", *commands)


def _table(draft: Draft) -> tuple[str, list[str]]:
    """Add a table with integer columns; return its name and those of the columns."""
    names = [f"c{i}" for i in range(draft.model.inputs)]
    lo, hi = int(draft.model.lo), int(draft.model.hi)
    step = (hi - lo) / 4
    features = [{"name": n, "lo": lo, "hi": hi, "step": step} for n in names]
    return draft.files.add("table.json", json.dumps({"features": features})), names


def _relation(draft: Draft) -> tuple[Words, list[str]]:
    """Return the words that describe the inputs of a table, and names of columns."""
    names = [str(i) for i in range(draft.model.inputs)]
    words: Words = []
    if draft.chance(0.5):
        table, names = _table(draft)
        words += ["--table", table]
    else:
        words += [*draft.box(), *draft.sometimes(0.5, "--grid", "0.25")]
    if draft.chance(0.4):
        width = draft.model.hi - draft.model.lo
        points = draft.files.points(draft.rng, draft.model)
        words += ["--input", points, "--radius", f"{width / 4:g}"]
    return words, names


def monotone(rng: Generator) -> Question:
    draft = Draft(rng, inputs=int(rng.integers(2, 4)))
    words, names = _relation(draft)
    words = ["monotone", draft.network, "--feature", draft.one_of(*names), *words]
    if draft.chance(0.4):
        words += ["--score", str(rng.integers(draft.model.classes))]
    else:
        words += ["--label", str(rng.integers(draft.model.classes))]
    words += draft.sometimes(0.4, "--decreasing")
    words += [*draft.sometimes(0.2, "--step", "0.5"), *ALONE, *UNLIMITED, *JSON]
    return draft.question("monotone", *draft.checked(words))


def fair(rng: Generator) -> Question:
    draft = Draft(rng, inputs=int(rng.integers(2, 4)))
    words, names = _relation(draft)
    protected = draft.one_of(*names)
    if draft.chance(0.3):
        protected += f"={draft.model.lo:g},{draft.model.hi:g}"
    words = ["fair", draft.network, "--protect", protected, *words]
    words += [*draft.sometimes(0.2, "--step", "0.5"), *ALONE, *UNLIMITED, *JSON]
    return draft.question("fair", *draft.checked(words))


# -- files and many questions ----------------------------------------------------------------------


def convert(rng: Generator) -> Question:
    draft = Draft(rng, image=draft_image(rng))
    target = f"made.{draft.one_of('npz', 'json', 'onnx')}"
    words = ["convert", draft.network, target]
    words += draft.sometimes(0.3, "--sign-zero", draft.one_of(*SIGN_ZERO))
    return draft.question("convert", words, ["info", target, *JSON])


def info(rng: Generator) -> Question:
    draft = Draft(rng, image=draft_image(rng))
    return draft.question("info", ["info", draft.network, *JSON])


def run(rng: Generator) -> Question:
    draft = Draft(rng)
    norm = draft.one_of(*NORMS)
    radii = ",".join(dict.fromkeys(draft.radius(norm) for _ in range(2)))
    points = draft.files.points(rng, draft.model, 3)
    words = ["run", draft.network, "--data", points, "--norm", norm, "--radius", radii]
    words += [*draft.box(), *draft.grid(0.2), *draft.sometimes(0.3, "--ties", "robust")]
    words += draft.sometimes(0.3, "--method", draft.one_of("bab", "milp", "interval"))
    if draft.chance(0.4):
        labels = rng.integers(draft.model.classes, size=3)
        words += ["--labels", draft.files.array("labels.npy", labels)]
    words += ["--out", "results.sqlite", *UNLIMITED]
    # The second run has nothing left to do.
    report = ["report", "results.sqlite", "-o", "page.html", "--csv", "tables"]
    return draft.question(f"run {norm}", words, words, report)


def results(rng: Generator) -> Question:
    draft = Draft(rng)
    points = draft.files.points(rng, draft.model, 3)
    words = ["run", draft.network, "--data", points, "--radius", draft.radius("linf"), *draft.box()]
    first = [*words, "--out", "a.sqlite", *UNLIMITED]
    second = [*words, "--method", "interval", "--out", "b.sqlite", *UNLIMITED]
    return draft.question("compare results", first, second, ["diff", "a.sqlite", "b.sqlite"])


def folder(rng: Generator) -> Question:
    draft = Draft(rng, image=True)
    for number in range(3):
        place = (
            f"images/{int(rng.integers(draft.model.classes))}" if draft.chance(0.8) else "images"
        )
        draft.files.picture(rng, draft.model, f"{place}/{number}.png")
    norm = draft.one_of("linf", "linf", "l2", "brightness")
    command = draft.one_of("verify", "radius")
    words = [command, draft.network, "images", "--norm", norm, *draft.box(), *draft.scale()]
    words += ["--radius", draft.radius(norm)] if command == "verify" else []
    return draft.question(f"{command} folder", [*words, *ALONE, *UNLIMITED, *JSON])


def category(rng: Generator) -> Question:
    draft = Draft(rng)
    rows = []
    for number in range(2):
        (point,) = random_points(rng, draft.model, 1)
        span = float(rng.integers(1, 17)) / 32 * (draft.model.hi - draft.model.lo)
        text = query_text(rng, draft.model, point, span)
        rows.append(f"{draft.network},{draft.files.add(f'q{number}.vnnlib', text)},60")
    draft.files.add("instances.csv", "\n".join(rows) + "\n")
    words = ["vnncomp", "instances.csv", "--out", "answers", *draft.sometimes(0.3, "-q")]
    return draft.question("vnncomp", words)


def words_alone(rng: Generator) -> Question:
    draft = Draft(rng)
    asked = [
        ["methods"],
        ["--version"],
        ["--help"],
        [draft.one_of("verify", "radius", "count", "faults", "check", "run"), "--help"],
        ["supports", draft.one_of("--onnx-operators", "--onnx-opset-versions")],
        ["supports", "--onnx-element-types", "--arithmetic", "float32"],
        ["experiment", "paper-linf-reduced", "--dry-run"],
        [],
        [draft.one_of("verfy", "radii", "proof")],
    ]
    return draft.question("without a network", asked[int(rng.integers(len(asked)))])


def defaults(rng: Generator) -> Question:
    draft = Draft(rng)
    norm, region = draft.region()
    lines = [
        f'method = "{draft.one_of("bab", "interval", "nothing")}"',
        'ties = "robust"',
        f"seed = {draft.one_of('1', '-1', '2')}",
        f'[verify]\n{draft.one_of("rivals", "rival")} = "runner-up"',
    ]
    chosen = [line for line in lines if draft.chance(0.6)]
    draft.files.add("bnncert.toml", "\n".join(chosen) + "\n")
    words = ["verify", draft.network, *region, *ALONE, *UNLIMITED, *JSON]
    return draft.question(f"defaults {norm}", words)


# -- what is refused -------------------------------------------------------------------------------


def tampered(rng: Generator) -> Question:
    """Check a certificate against another network."""
    draft = Draft(rng)
    _, region = draft.region(("linf", "linf", "l2"))
    other = draft.files.network(rng, changed(rng, draft.model), "other")
    words = ["verify", draft.network, *region, *ALONE, *UNLIMITED]
    words += ["--certificate", "proof.bnncert"]
    draft.files.add("broken.bnncert", bytes(rng.integers(0, 256, size=200, dtype=np.uint8)))
    return draft.question(
        "check refused",
        words,
        ["check", "proof.bnncert", "--model", other, *JSON],
        ["check", "broken.bnncert", "--model", draft.network],
        ["check", "missing.bnncert", "--model", draft.network],
    )


def broken_file(rng: Generator) -> Question:
    """Cut, change or remove a file of a valid question."""
    draft = Draft(rng)
    _, region = draft.region(("linf",))
    words = ["verify", draft.network, *region, *ALONE, *UNLIMITED]
    name = draft.one_of(*sorted(draft.files.content))
    content = draft.files.content[name]
    how = draft.one_of("cut", "changed", "missing", "empty", "text")
    place = int(rng.integers(1, len(content)))
    altered = {
        "cut": content[:place],
        "changed": content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :],
        "empty": b"",
        "text": b"not a network\n",
    }
    draft.files.content.pop(name)
    if how != "missing":
        draft.files.add(name, altered[how])
    return draft.question(f"file {how}", words)


def broken_network(rng: Generator) -> Question:
    """Read a network file whose arrays do not fit together."""
    draft = Draft(rng)
    tree: dict[str, Any] = {k: np.asarray(v).tolist() for k, v in draft.model.tree.items()}
    key = draft.one_of(*sorted(tree))
    how = draft.one_of("without", "text", "nan", "nested", "half", "more")
    if how == "without":
        tree.pop(key)
    elif how == "more":
        tree["W9"] = [[1.0]]
    else:
        value = {"text": "abc", "nan": float("nan"), "nested": [[tree[key]]], "half": 0.5}[how]
        tree[key] = value
    name = draft.files.add("net.json", json.dumps(tree))
    return draft.question(f"network {how}", ["info", name, *JSON])


VALUES = ("-1", "0", "nan", "inf", "1e400", "abc", "", "1,2", "999999", "0.5px", "1/0", "l3")


def broken_words(rng: Generator) -> Question:
    """Change, drop or add a word of a valid command line."""
    valid = KINDS[int(rng.integers(FIRST_REFUSED))][1](rng)
    words = list(valid.commands[0])
    how = ["changed", "dropped", "added", "twice"][int(rng.integers(4))]
    place = int(rng.integers(1, max(2, len(words))))
    if how == "changed" and len(words) > place:
        words[place] = VALUES[int(rng.integers(len(VALUES)))]
    elif how == "dropped" and len(words) > place:
        del words[place]
    elif how == "added":
        more = (["--nothing"], ["--radius", "-1"], ["--method", "nothing"], ["--timeout", "0"])
        words += [*more, ["extra"], ["--index", "7"], ["--label", "9"]][int(rng.integers(7))]
    else:
        words += words[-2:]
    command = valid.commands[0][0] if valid.commands[0] else ""
    return Question(f"words {how}, {command}", valid.files, [words])


Kind: TypeAlias = Callable[[Generator], Question]

#: The kinds of questions and how often each is asked; those from FIRST_REFUSED on are refused.
KINDS: tuple[tuple[int, Kind], ...] = (
    (30, verify),
    (6, shape),
    (6, image),
    (7, query),
    (12, bound),
    (6, radius),
    (6, smallest),
    (3, shape_radius),
    (6, explain),
    (5, faults),
    (7, count),
    (7, compare),
    (4, monotone),
    (4, fair),
    (3, convert),
    (3, info),
    (4, run),
    (2, results),
    (3, folder),
    (3, category),
    (3, words_alone),
    (2, defaults),
    (4, tampered),
    (6, broken_file),
    (5, broken_network),
    (12, broken_words),
)
FIRST_REFUSED = 22


def questions(seed: int, number: int) -> Iterator[Question]:
    """Yield questions; each has its own generator, so that a longer record begins like a short."""
    weights = np.array([weight for weight, _ in KINDS], dtype=np.float64)
    for index in range(number):
        rng = np.random.default_rng([seed, index])
        kind = KINDS[int(rng.choice(len(KINDS), p=weights / weights.sum()))][1]
        yield kind(rng)
