"""Configurations: the same from YAML and JSON, and every mistake with its line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from bnncert import BnncertError
from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.loading import RandomNetwork
from bnncert.results.config_file import find_configuration, shipped_names
from bnncert.results.configuration import Configuration, read_configuration, with_changes
from tests.results.tiny import CONFIG

needs_yaml = pytest.mark.skipif(
    importlib.util.find_spec("yaml") is None, reason="needs the extra 'experiments'"
)

GOOD = """\
networks:
  - name: one
    file: demo:sparse
  - name: two
    random: {sizes: [4, 3, 2], zeros: 0.5, seed: 3}
data:
  file: demo
  count: 5
norms: [linf, l2]
radii:
  - 0.25 delta
  - 1px
  - 1e-3
methods:
  - lp
  - {method: sample, samples: 10}
question: bound
rivals: runner-up
timeout: 20
"""


def read(folder: Path, text: str, name: str = "c.yaml") -> Configuration:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_configuration(path)


@needs_yaml
def test_what_a_file_says(folder: Path) -> None:
    config = read(folder, GOOD)
    assert [(n.name, n.source) for n in config.networks] == [
        ("one", "demo:sparse"),
        ("two", RandomNetwork((4, 3, 2), 0.5, None, 3)),
    ]
    part = config.parts[0]
    assert (part.networks, part.norms) == (("one", "two"), ("linf", "l2"))
    assert [(r.number, r.unit) for r in part.radii] == [
        (0.25, "delta"),
        (1.0, "px"),
        (0.001, "input"),
    ]
    assert [m.method for m in part.methods] == ["lp", "sample"]
    assert part.settings("l2", part.methods[1]).method_text == "sample samples=10"
    assert (part.common.question, part.common.rivals, part.common.timeout) == (
        "bound",
        "runner-up",
        20.0,
    )
    assert (part.data.source, part.data.selection.count, part.certificates) == ("demo", 5, False)


@needs_yaml
def test_json_and_yaml_say_the_same(folder: Path) -> None:
    text = json.dumps(CONFIG, indent=1)
    from_json, from_yaml = read(folder, text, "a.json"), read(folder, text, "a.yaml")
    # Lines, too: JSON is YAML, read here by two readers that share nothing.
    assert from_json.networks == from_yaml.networks
    assert from_json.parts == from_yaml.parts
    assert from_json.parts[0].radii[1].line == text[: text.index("0.6")].count("\n") + 1


@needs_yaml
def test_a_part_takes_what_it_does_not_say_from_the_top(folder: Path) -> None:
    parts = "parts:\n  - {networks: [two], timeout: 3}\n  - {radii: 0.5, norms: linf}\n"
    first, second = read(folder, GOOD + parts).parts
    assert (first.networks, first.common.timeout, len(first.radii)) == (("two",), 3.0, 3)
    assert (second.networks, second.common.timeout) == (("one", "two"), 20.0)
    assert [r.number for r in second.radii] == [0.5]


@needs_yaml
@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("  - 1px", "  - -1", 12, "radius is -1; expected a number >= 0"),
        ("  - 1px", "  - two", 12, "radius is two; expected a number >= 0, also as in 1px"),
        ("  - 1px", "  - .nan", 12, "radius is nan; expected a number >= 0"),
        ("  - 1px", "  - [1]", 12, "radius is a list; expected a number >= 0"),
        ("  - 1px", "  - 0.25delta", 12, "radius 0.25 delta again"),
        ("timeout: 20", "timeout: 0", 19, "timeout is 0; expected a number of seconds > 0"),
        ("timeout: 20", "timeout: soon", 19, "timeout is 'soon'; expected a number"),
        ("timeout: 20", "timout: 20", 19, "unknown key 'timout' in the configuration; did you"),
        ("timeout: 20", "data: demo", 19, "key 'data' again; first in line 6"),
        ("  - name: two", "  - name: one", 4, "network one again; first in line 2"),
        ("  - name: two", "  - name: 2", 4, "name is 2; expected a text"),
        ("    file: demo:sparse", "    file: gone.npz", 3, "gone.npz: no such file"),
        ("    file: demo:sparse", "    file: demo:small", 3, "bundled are demo:sparse, demo:dense"),
        ("  file: demo\n", "  file: gone.npz:x\n", 7, "gone.npz:x: no such file"),
        ("  count: 5", "  count: 0", 8, "count is 0; expected a whole number >= 1"),
        ("  count: 5", "  count: true", 8, "count is true; expected a whole number >= 1"),
        ("  count: 5", "  index: 5", 8, "unknown key 'index' in data"),
        ("sizes: [4, 3, 2]", "sizes: [4, 2]", 5, "sizes is [4, 2]; expected inputs"),
        ("sizes: [4, 3, 2]", "sizes: [4, 0, 2]", 5, "size is 0; expected a whole number >= 1"),
        ("zeros: 0.5", "zeros: 1", 5, "zeros is 1; expected 0 <= zeros < 1"),
        ("  - lp", "  - simplex", 15, "no method 'simplex'"),
        ("  - lp", "  - milp", 15, "method milp has no l2 ball; only linf, l1, l0, box, polytope"),
        ("  - lp", "  - {method: lp, form: soft}", 15, "method lp does not use form"),
        ("  - lp", "  - {method: lp, samples: 3}", 15, "method lp does not use samples"),
        ("[linf, l2]", "[linf, l3]", 9, "norm is 'l3'; expected linf, l2, l1, l0, brightness, "),
        ("[linf, l2]", "[l2, l2]", 9, "norm l2 again"),
        ("question: bound", "question: why", 17, "question is 'why'; expected verify or bound"),
        ("question: bound", "question: bound\nties: robust", 18, "ties have no meaning"),
        ("question: bound", "question: bound\ncertificates: yes", 18, "certificates of bounds"),
        ("question: bound", "question: bound\nclip: [1, 0]", 18, "clip is 1.0 0.0; expected"),
        ("rivals: runner-up", "rivals: none", 18, "rivals is 'none'; expected all"),
        ("rivals: runner-up", "rivals: *all", 18, "an alias (*); write it out"),
        ("rivals: runner-up", "rivals: !!python/name:os.system x", 18, "of type !!python/"),
        ("rivals: runner-up", "rivals: 2001-01-01", 18, "a value of type !!timestamp"),
        ("rivals: runner-up", "? [a]\n: b", 18, "a value of type !!seq; expected text"),
        ("rivals: runner-up", "rivals: {", 18, "not YAML: "),
        ("methods:\n", "methods: []\nmemory:\n", 14, "methods is an empty list"),
        ("networks:\n", "nets:\n", 1, "unknown key 'nets' in the configuration; did you mean"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(
    folder: Path, old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    path = folder / "c.yaml"
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BnncertError) as caught:
        read_configuration(path)
    text = str(caught.value)
    assert words in text
    assert text.startswith(f"{path}:{line}: "), text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"networks": []}', 1, "networks is a list; expected a list of mappings"),
        ('{\n "networks": [\n {"name": "a",}]}', 3, "not JSON: expected a key in quotation marks"),
        ('{\n"a": 1,\n"a": 2}', 3, "key 'a' again; first in line 2"),
        ('{\n"a": tru}', 2, "not JSON: expected a value"),
        ('{\n"a": 1\n"b": 2}', 3, "not JSON: expected , or }"),
        ('{"a": [1, 2\n}', 2, "not JSON: expected , or ]"),
        ('{\n"a": "\n"}', 2, "not JSON: Invalid control character"),
        ("{}\n{}", 2, "not JSON: more text after the end"),
        ("{\n\n}", 1, "the configuration has no networks"),
        ("[]", 1, "the configuration is a list; expected a mapping"),
        ("", 1, "not JSON: expected a value"),
    ],
)
def test_a_mistake_in_json_is_named_with_its_line(
    folder: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(FormatError) as caught:
        read(folder, text, "c.json")
    assert str(caught.value).startswith(f"{folder / 'c.json'}:{line}: ")
    assert words in str(caught.value)


def test_files_that_are_no_text(folder: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.json: no such file"):
        read_configuration(Path("none.json"))
    Path("binary.json").write_bytes(b"{\n\xff}")
    with pytest.raises(FormatError, match=r"binary\.json:2: not UTF-8 text"):
        read_configuration(Path("binary.json"))
    Path("deep.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(FormatError, match=r"deep\.json: nested too deeply"):
        read_configuration(Path("deep.json"))
    with pytest.raises(FormatError, match=r"no bundled experiment; those are paper-cifar, "):
        find_configuration("papper")


def test_without_pyyaml_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bnncert\[experiments\]'"):
        read(folder, GOOD)


def test_changes_from_the_command_line(folder: Path) -> None:
    config = read_configuration(Path("tiny.json"))
    changed = with_changes(config, networks={"dice": "x.npz"}, data="y.npy", count=2, timeout=4)
    assert [n.source for n in changed.networks] == ["net.npz", "x.npz"]
    assert [(p.data.source, p.data.selection.count, p.common.timeout) for p in changed.parts] == [
        ("y.npy", 2, 4)
    ] * 2
    # At most: a part that has fewer keeps its own number.
    assert with_changes(config, count=9).parts[1].data.selection.count == 3
    with pytest.raises(BnncertError, match="--network names cube"):
        with_changes(config, networks={"cube": "x.npz"})


# --- those that come with bnncert ------------------------------------------------------------


@needs_yaml
def test_the_bundled_ones_can_be_read() -> None:
    names = shipped_names()
    assert {n for n in names if not n.endswith("-reduced")} == {
        *("paper-linf", "paper-l2", "paper-linf-images", "paper-l2-images"),
        *("paper-gap", "paper-cifar", "paper-random"),
    }
    for name in names:
        if importlib.util.find_spec("pyscipopt") is None and "-l2" in name:
            # Its exact method is minp, and reading finds out that it is not there.
            continue
        config = read_configuration(find_configuration(name))
        limits = {part.common.timeout for part in config.parts}
        if name.endswith("-reduced"):
            assert name.removesuffix("-reduced") in names
            assert limits == {60.0}
            assert all(
                (p.data.selection.count or len(p.data.selection.indices or ())) <= 20
                for p in config.parts
            )
        else:
            assert f"{name}-reduced" in names
            assert limits in ({600.0}, {3600.0})


@needs_yaml
def test_the_linf_table_asks_what_the_paper_asks() -> None:
    # Table "Performance comparison": four and three radii of 127.5 eps, 100 images, 600 s.
    config = read_configuration(find_configuration("paper-linf"))
    asked = {part.networks: [r.text for r in part.radii] for part in config.parts}
    assert asked == {
        ("BNN1",): ["0.25 delta", "0.5 delta", "1 delta", "1.5 delta"],
        ("BNN2",): ["0.25 delta", "0.5 delta", "0.75 delta"],
    }
    for part in config.parts:
        assert (part.common.rivals, part.common.timeout, part.data.selection.count) == (
            "runner-up",
            600.0,
            100,
        )
        texts = [part.settings("linf", m).method_text for m in part.methods]
        assert texts[:3] == ["lp", "sdp-tight", "milp form=soft"]
