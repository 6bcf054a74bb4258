"""The content of a configuration file, and its reading; docs/experiments.md explains the keys.

Every mistake is reported with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from bnncert.engine.methods import REGISTRY
from bnncert.engine.relaxations.linear import Form
from bnncert.engine.solvers import SolverName
from bnncert.errors import BnncertError, InputError
from bnncert.model.description import SignZero
from bnncert.model.formats.inputs import KEYED_SUFFIXES, split_key
from bnncert.model.loading import RandomNetwork
from bnncert.problem import Rivals, Ties, rivals_of
from bnncert.regions import ChangeNorm
from bnncert.regions.radii import VALUED, PixelScale, Radius, check_clip, read_radius, read_step
from bnncert.results.config_file import ConfigSection, Node, read_document
from bnncert.results.instance import Settings
from bnncert.results.labelled_points import DEMO_DATA, OWN, Selection, bundled_index
from bnncert.results.rows import Question

#: Networks that come with bnncert.
DEMO_NETWORKS: dict[str, Literal["sparse", "dense", "certified"]] = {
    "demo:sparse": "sparse",
    "demo:dense": "dense",
    "demo:certified": "certified",
}


@dataclass(frozen=True)
class NetworkSource:
    """A network: a file, a bundled one, a recipe, or None if the command line names the file."""

    name: str
    source: str | RandomNetwork | None
    sign_zero: SignZero | None
    line: int

    @property
    def text(self) -> str:
        """The file or recipe."""
        return self.source.text if isinstance(self.source, RandomNetwork) else str(self.source)


@dataclass(frozen=True)
class DataSource:
    """Points: a file, the bundled images, a seed of random points, or None.

    None means a file that the command line names.  `labels` is a file of their classes, or "own";
    None means the labels in the same file.
    """

    source: str | int | None
    selection: Selection
    line: int
    labels: str | None = None

    def replaced_by(self, text: str) -> DataSource:
        """Return the points of another file, or of demo:INDEX, in the same selection."""
        index = bundled_index(text)
        if index is not None:
            return DataSource(DEMO_DATA, Selection(index, 1), self.line)
        # The labels of the configuration belong to other points.
        return replace(self, source=text, labels=None)


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options; `timeout` replaces that of the part."""

    method: str
    form: Form | None
    samples: int | None
    solver: str | None
    timeout: float | None
    line: int


@dataclass(frozen=True)
class Part:
    """Some networks, and every combination of norms, radii and methods for them.

    `common` are the settings of all instances, without norm and method.
    """

    networks: tuple[str, ...]
    data: DataSource
    norms: tuple[ChangeNorm, ...]
    radii: tuple[Radius, ...]
    methods: tuple[MethodChoice, ...]
    common: Settings
    certificates: bool
    clip: tuple[float, float] | None
    scale: PixelScale | None

    def settings(self, norm: ChangeNorm, choice: MethodChoice) -> Settings:
        """Return the settings of the instances of a norm and a method."""
        return replace(
            self.common,
            norm=norm,
            method=choice.method,
            timeout=self.common.timeout if choice.timeout is None else choice.timeout,
            form=choice.form,
            samples=choice.samples,
            solver=choice.solver,
            within=self.common.within if norm == "l0" else None,
            value=self.common.value if norm in VALUED else None,
        )


@dataclass(frozen=True)
class Configuration:
    """The content of a configuration file, completely checked."""

    path: Path
    title: str
    networks: tuple[NetworkSource, ...]
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of networks, points and labels (and the names of bundled ones)."""
        points = [s for p in self.parts for s in (p.data.source, p.data.labels)]
        sources = [*(n.source for n in self.networks), *points]
        return tuple(s for s in sources if isinstance(s, str))

    def wrong(self, line: int, error: BnncertError) -> BnncertError:
        """Return an error of the same kind that names its line."""
        return type(error)(f"{self.path}:{line}: {error}")


def with_changes(
    configuration: Configuration,
    *,
    networks: Mapping[str, str] | None = None,
    data: str | None = None,
    labels: str | None = None,
    count: int | None = None,
    timeout: float | None = None,
    grid: Radius | None = None,
) -> Configuration:
    """Return the configuration with the values that the command line states.

    `count` is the largest number of points of each part.
    """
    files = dict(networks or {})
    known = {n.name for n in configuration.networks}
    for name in files:
        if name not in known:
            raise InputError(
                f"--network names {name}; {configuration.path} has {', '.join(sorted(known))}"
            )
    if count is not None and count < 1:
        raise InputError(f"--count is {count}; expected at least 1")
    parts = []
    for part in configuration.parts:
        points = part.data
        if data is not None:
            points = points.replaced_by(data)
        if labels is not None:
            points = replace(points, labels=labels)
        if count is not None:
            points = replace(points, selection=points.selection.at_most(count))
        part = replace(part, data=points)
        if grid is not None:
            part = replace(part, common=replace(part.common, grid=grid))
        if timeout is not None:
            methods = tuple(replace(choice, timeout=None) for choice in part.methods)
            common = replace(part.common, timeout=timeout)
            part = replace(part, common=common, methods=methods)
        parts.append(part)
    return replace(
        configuration,
        networks=tuple(
            replace(n, source=files.get(n.name, n.source)) for n in configuration.networks
        ),
        parts=tuple(parts),
    )


def selected(
    configuration: Configuration,
    *,
    networks: Sequence[str] = (),
    radii: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> Configuration:
    """Keep the instances of the named networks, radii and methods; no name keeps all of a kind.

    A radius is named as the file writes it, up to spaces and zeros: its unit may depend on the
    network, and an experiment is selected before any network is read.
    """
    parts = configuration.parts
    names = dict.fromkeys(name for part in parts for name in part.networks)
    sizes = dict.fromkeys(radius.text for part in parts for radius in part.radii)
    kinds = dict.fromkeys(choice.method for part in parts for choice in part.methods)
    read = [(text, read_radius(text)) for text in radii]
    wanted = {text if radius is None else radius.text for text, radius in read}
    choices = (("network", networks, names), ("radius", wanted, sizes), ("method", methods, kinds))
    for option, asked, known in choices:
        for text in asked:
            if text not in known:
                there = ", ".join(known)
                raise InputError(f"--{option} is {text}; {configuration.path} has {there}")
    kept = [
        replace(
            part,
            networks=tuple(n for n in part.networks if not networks or n in networks),
            radii=tuple(r for r in part.radii if not wanted or r.text in wanted),
            methods=tuple(m for m in part.methods if not methods or m.method in methods),
        )
        for part in parts
    ]
    kept = [part for part in kept if part.networks and part.radii and part.methods]
    if not kept:
        given = [f"--{option} {','.join(asked)}" for option, asked, _ in choices if asked]
        raise InputError(
            f"{configuration.path}: no part has {' and '.join(given)} together; --dry-run without "
            "them lists what there is"
        )
    used = {name for part in kept for name in part.networks}
    sources = tuple(n for n in configuration.networks if n.name in used)
    return replace(configuration, networks=sources, parts=tuple(kept))


# -- reading ------------------------------------------------------------------------------

T = TypeVar("T")

_PART_KEYS = (
    *("data", "norms", "radii", "methods", "question", "rivals", "ties", "timeout", "seed"),
    *("certificates", "clip", "memory", "scale", "mean", "std", "grid", "within", "value"),
)
_TOP_KEYS = ("title", "networks", "parts", *_PART_KEYS)
_NETWORK_KEYS = ("name", "file", "random", "sign_zero")
_RANDOM_KEYS = ("sizes", "zeros", "nonzeros", "seed")
_DATA_KEYS = ("file", "labels", "random", "count", "first", "indices")
_METHOD_KEYS = ("method", "form", "samples", "solver", "timeout")


def read_configuration(path: Path) -> Configuration:
    """Read a configuration; the files that it names must exist, but they are not opened."""
    root = read_document(path)
    top = ConfigSection(path, root, "the configuration", _TOP_KEYS)
    networks = _networks(top)
    nodes = top.get("parts")
    if nodes is None:
        parts = [_part(ConfigSection(path, root, "the configuration", _TOP_KEYS), networks)]
    else:
        if not isinstance(nodes.value, list) or not nodes.value:
            raise top.wrong(f"parts is {nodes.kind}; expected a list of mappings", nodes.line)
        keys = ("networks", *_PART_KEYS)
        parts = [
            _part(ConfigSection(path, n, "the part", keys, top), networks) for n in nodes.value
        ]
    title = top.text("title") or path.stem
    return Configuration(path, title, tuple(networks.values()), tuple(parts))


def _networks(top: ConfigSection) -> dict[str, NetworkSource]:
    node = top.need("networks")
    if not isinstance(node.value, list) or not node.value:
        raise top.wrong(f"networks is {node.kind}; expected a list of mappings", node.line)
    found: dict[str, NetworkSource] = {}
    for item in node.value:
        section = ConfigSection(top.path, item, "the network", _NETWORK_KEYS)
        name = section.as_text(section.need("name"), "name")
        if name in found:
            line = section.need("name").line
            raise top.wrong(f"network {name} again; first in line {found[name].line}", line)
        file, recipe = section.get("file"), section.get("random")
        if file is not None and recipe is not None:
            raise top.wrong(f"network {name} has a file and is random; give one", recipe.line)
        source: str | RandomNetwork | None = None
        if file is not None:
            source = _file(section, file, tuple(DEMO_NETWORKS))
        elif recipe is not None:
            source = _recipe(section, recipe)
        sign_zero: Any = section.chosen("sign_zero", get_args(SignZero))
        found[name] = NetworkSource(name, source, sign_zero, section.line)
    return found


def _file(
    section: ConfigSection,
    node: Node,
    bundled: tuple[str, ...],
    key: str = "file",
    *,
    folders: bool = False,
) -> str:
    """Return the path of a file (or folder) that exists, as seen from here, or a bundled name."""
    text = section.as_text(node, key)
    if text in bundled:
        return text
    full = section.path.parent / text
    try:
        file = Path(split_key(str(full), KEYED_SUFFIXES)[0])
        there = file.is_file() or (folders and file.is_dir())
    except (OSError, ValueError):
        # The text cannot be the name of a file.
        there = False
    if not there and text.startswith(DEMO_DATA):
        raise section.wrong(f"file is {text}; bundled are {', '.join(bundled)}", node.line)
    if not there:
        raise section.wrong(f"{text}: no such file", node.line)
    return str(full)


def _recipe(section: ConfigSection, node: Node) -> RandomNetwork:
    random = ConfigSection(section.path, node, "random", _RANDOM_KEYS)
    sizes_node = random.need("sizes")
    items = random.items("sizes") or []
    sizes = tuple(random.as_integer(n, "size", 1) for n in items)
    if len(sizes) < 3 or sizes[-1] < 2:
        raise random.wrong(
            f"sizes is {list(sizes)}; expected inputs, one layer or more, and at least 2 classes",
            sizes_node.line,
        )
    zeros, nonzeros = random.number("zeros"), random.integer("nonzeros", 1)
    if zeros is not None and nonzeros is not None:
        raise random.wrong("zeros and nonzeros; give one", random.need("nonzeros").line)
    if zeros is not None and not 0 <= zeros < 1:
        raise random.wrong(
            f"zeros is {zeros:g}; expected 0 <= zeros < 1", random.need("zeros").line
        )
    seed = random.integer("seed", 0)
    return RandomNetwork(sizes, zeros or 0.0, nonzeros, seed or 0)


def _data(section: ConfigSection) -> DataSource:
    node = section.get("data")
    if node is None:
        return DataSource(None, Selection(), section.line)
    if isinstance(node.value, str):
        index = bundled_index(node.value)
        if index is not None:
            return DataSource(DEMO_DATA, Selection(index, 1), node.line)
        file = _file(section, node, (DEMO_DATA,), folders=True)
        return DataSource(file, Selection(), node.line)
    data = ConfigSection(section.path, node, "data", _DATA_KEYS)
    count, first = data.integer("count", 1), data.integer("first", 0)
    nodes = data.items("indices")
    indices = None if nodes is None else tuple(data.as_integer(n, "index", 0) for n in nodes)
    if indices is not None and (count is not None or first is not None):
        raise data.wrong("indices with count or first; give one", data.need("indices").line)
    if indices is not None and len(set(indices)) < len(indices):
        raise data.wrong("an index twice in indices", data.need("indices").line)
    file_node, random = data.get("file"), data.get("random")
    if file_node is not None and random is not None:
        raise data.wrong("data is a file and random; give one", random.line)
    source: str | int | None = None
    if file_node is not None:
        source = _file(data, file_node, (DEMO_DATA,), folders=True)
    labels_node = data.get("labels")
    labels = None if labels_node is None else _file(data, labels_node, (OWN,), "labels")
    if labels_node is not None and random is not None:
        raise data.wrong("random data has no labels", labels_node.line)
    if random is not None:
        recipe = ConfigSection(section.path, random, "random", ("seed",))
        source = recipe.integer("seed", 0) or 0
        if count is None:
            raise data.wrong("random data has no count", random.line)
    return DataSource(source, Selection(first or 0, count, indices), node.line, labels)


def _part(section: ConfigSection, networks: Mapping[str, NetworkSource]) -> Part:
    norm_nodes = section.items("norms") or [Node("linf", section.line)]
    norms: list[Any] = [section.choice(n, "norm", get_args(ChangeNorm)) for n in norm_nodes]
    methods = [_method(section, node) for node in section.items("methods") or []]
    if not methods:
        raise section.wrong(f"{section.what} has no methods")
    question: Any = section.chosen("question", get_args(Question)) or "verify"
    ties: Any = section.chosen("ties", get_args(Ties)) or "violation"
    certificates = section.flag("certificates", False)
    if question == "bound" and certificates:
        line = section.need("certificates").line
        raise section.wrong("certificates of bounds; only verdicts have them", line)
    if question == "bound" and ties != "violation":
        line = section.need("ties").line
        raise section.wrong("ties have no meaning for a bound; leave them out", line)
    grid = section.get("grid")
    part = Part(
        networks=_chosen_networks(section, networks),
        data=_data(section),
        norms=_once(section, norms, norm_nodes, "norm"),
        radii=_radii(section),
        methods=tuple(methods),
        common=Settings(
            rivals=_rivals(section),
            ties=ties,
            timeout=section.positive("timeout", "seconds"),
            seed=section.integer("seed", 0) or 0,
            memory=section.positive("memory", "GB") or 4.0,
            question=question,
            grid=None if grid is None else _length(section, grid, "grid"),
            within=_of_norms(section, "within", ("l0",), norms, partial(_length, section)),
            value=_of_norms(section, "value", VALUED, norms, section.as_number),
        ),
        certificates=certificates,
        clip=_clip(section),
        scale=_scale(section),
    )
    for choice in part.methods:
        for norm in part.norms:
            try:
                part.settings(norm, choice)
            except BnncertError as error:
                raise type(error)(f"{section.path}:{choice.line}: {error}") from error
    return part


def _once(
    section: ConfigSection, values: list[Any], nodes: list[Node], what: str
) -> tuple[Any, ...]:
    """Return values that must all differ."""
    for k, value in enumerate(values):
        if value in values[:k]:
            raise section.wrong(f"{what} {value} again", nodes[k].line)
    return tuple(values)


def _chosen_networks(
    section: ConfigSection, networks: Mapping[str, NetworkSource]
) -> tuple[str, ...]:
    """Return the names of a part's networks: those it lists, or all."""
    nodes = section.items("networks") if section.defaults is not None else None
    if nodes is None or "networks" not in section.values:
        return tuple(networks)
    names = [section.as_text(node, "network") for node in nodes]
    for name, node in zip(names, nodes, strict=True):
        if name not in networks:
            raise section.wrong(f"no network {name}; there is {', '.join(networks)}", node.line)
    return _once(section, names, nodes, "network")


def _radii(section: ConfigSection) -> tuple[Radius, ...]:
    nodes = section.items("radii")
    if nodes is None:
        raise section.wrong(f"{section.what} has no radii")
    radii = [_length(section, node, "radius") for node in nodes]
    _once(section, [radius.text for radius in radii], nodes, "radius")
    return tuple(radii)


#: What is expected of a radius, of by how much an input may change, and of the step of a grid.
_LENGTHS = {
    "radius": "a number >= 0, also as in 1px or 0.25 delta",
    "within": "a number >= 0, also as in 1px",
    "grid": "a step > 0, also as in 1px",
}


def _length(section: ConfigSection, node: Node, name: str) -> Radius:
    value, line = node.value, node.line
    found = read_step(value, line) if name == "grid" else read_radius(value, line, name)
    if found is None:
        is_text = isinstance(value, str)
        expected = _LENGTHS[name] if is_text or name != "radius" else "a number >= 0"
        text = value if is_text else node.kind
        raise section.wrong(f"{name} is {text}; expected {expected}", line)
    return found


def _of_norms(
    section: ConfigSection,
    key: str,
    owners: Sequence[str],
    norms: Sequence[ChangeNorm],
    read: Callable[[Node, str], T],
) -> T | None:
    """Read the value of a key that belongs to some norms, if the part has one of them."""
    node = section.get(key)
    if node is None or set(owners) & set(norms):
        return None if node is None else read(node, key)
    if key not in section.values:
        # Stated for all parts, of which some have other norms.
        return None
    text = f"{key} belongs to norm {' or '.join(owners)}, not to {', '.join(norms)}"
    raise section.wrong(text, node.line)


def _rivals(section: ConfigSection) -> Rivals:
    node = section.get("rivals")
    if node is None:
        return "all"
    value: Any = node.value
    if isinstance(value, list):
        value = [section.as_integer(item, "rival", 0) for item in value]
    try:
        found = rivals_of(value)
    except InputError as error:
        raise section.wrong(str(error), node.line) from error
    if found is None:
        text = f"rivals is {node.kind}; expected all, runner-up, a class or a list of classes"
        raise section.wrong(text, node.line)
    return found


def _clip(section: ConfigSection) -> tuple[float, float] | None:
    node = section.get("clip")
    if node is None:
        return None
    items = node.value if isinstance(node.value, list) else []
    if len(items) != 2:
        raise section.wrong(f"clip is {node.kind}; expected a list [LO, HI]", node.line)
    try:
        return check_clip(*(section.as_number(item, "clip") for item in items))
    except InputError as error:
        raise section.wrong(str(error), node.line) from error


def _scale(section: ConfigSection) -> PixelScale | None:
    """Return the scale of pixels: `scale: [LO, HI]`, or `mean` and `std`."""
    given = {k: n for k in ("scale", "mean", "std") if (n := section.get(k)) is not None}
    if not given:
        return None
    line = next(iter(given.values())).line
    if set(given) not in ({"scale"}, {"mean", "std"}):
        raise section.wrong(f"{' and '.join(given)}; expected scale, or mean and std", line)
    values = {
        key: [section.as_number(item, key) for item in section.items(key) or []] for key in given
    }
    try:
        if "scale" not in given:
            return PixelScale.normalised(values["mean"], values["std"])
        if len(values["scale"]) != 2:
            raise InputError("scale is not a list [LO, HI]")
        return PixelScale.between(*values["scale"])
    except InputError as error:
        raise section.wrong(str(error), line) from error


def _method(section: ConfigSection, node: Node) -> MethodChoice:
    if isinstance(node.value, str):
        node = Node({"method": node}, node.line, {"method": node.line})
    part = ConfigSection(section.path, node, "the method", _METHOD_KEYS)
    name_node = part.need("method")
    name = part.as_text(name_node, "method")
    if name not in {method.name for method in REGISTRY.all()}:
        raise part.wrong(f"no method {name!r}; see bnncert methods", name_node.line)
    for key in ("form", "samples", "solver"):
        owners = REGISTRY.readers(key)
        if (given := part.get(key)) is not None and name not in owners:
            text = f"method {name} does not use {key}; it belongs to {', '.join(owners)}"
            raise part.wrong(text, given.line)
    form: Any = part.chosen("form", ("lattice", "soft"))
    return MethodChoice(
        name,
        form,
        part.integer("samples", 1),
        part.chosen("solver", get_args(SolverName)),
        part.positive("timeout", "seconds"),
        node.line,
    )
