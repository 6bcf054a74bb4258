"""Bundled networks and images by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from bnncert.cli.files import model_file, point_source, points_source
from bnncert.errors import InputError
from bnncert.model.formats.inputs import read_array
from bnncert.model.loading import load, load_demo_images, load_demo_network


@pytest.mark.parametrize("which", ["sparse", "dense"])
def test_networks(which: str) -> None:
    named = load(model_file(f"demo:{which}"))
    assert named.content_hash == load_demo_network(which).content_hash  # type: ignore[arg-type]


def test_images() -> None:
    source, index = point_source("demo:7", None)
    assert index == 7 and source == points_source("demo")
    assert (read_array(source) == load_demo_images().pixels).all()


def test_files_keep_their_names(tmp_path: Path) -> None:
    assert model_file("net.npz") == Path("net.npz")
    assert point_source("a.npz:x", 3) == ("a.npz:x", 3)


def test_unknown_names() -> None:
    with pytest.raises(typer.BadParameter, match="demo:large: expected demo:sparse, demo:dense"):
        model_file("demo:large")
    for text, index in (("demo:x", None), ("demo:-1", None), ("demo:", None), ("demo:1", 2)):
        with pytest.raises(InputError, match="expected demo:INDEX"):
            point_source(text, index)
    assert len(load_demo_images().labels) == 100
    with pytest.raises(InputError, match="demo:100: the bundled images are demo:0 to demo:99"):
        point_source("demo:100", None)
