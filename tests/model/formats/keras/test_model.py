"""The order of the layers of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

h5py = pytest.importorskip("h5py", reason="needs the extra 'larq'")
from tests.model.formats.keras.h5_files import refusal, sound  # noqa: E402


def graph(*edges: tuple[str, Any], outputs: Any = (("c", 0, 0),)) -> dict[str, Any]:
    """Return a Functional model of activations, each with its inbound nodes."""
    layers = [
        {
            "class_name": "InputLayer" if name == "in" else "Activation",
            "name": name,
            "config": {"name": name, "activation": "linear", "batch_input_shape": [None, 2]},
            "inbound_nodes": nodes,
        }
        for name, nodes in edges
    ]
    body = {"layers": layers, "input_layers": [["in", 0, 0]], "output_layers": outputs}
    return {"class_name": "Functional", "config": body}


def after(*names: str, **options: Any) -> Any:
    return [[[name, 0, 0, options] for name in names]]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"class_name": "MyModel", "config": {}}, "the model is of class MyModel"),
        ({"class_name": "Sequential", "config": {"layers": []}}, "lists no layers"),
        ({"class_name": "Sequential", "config": {"layers": [7]}}, "layer 0 of the configuration"),
        (
            {"class_name": "Sequential", "config": [{"class_name": "Flatten", "config": {}}]},
            "does not state the shape of the input",
        ),
        (
            {
                "class_name": "Sequential",
                "config": [{"class_name": "Mine>Dense", "config": {"name": "d"}}],
            },
            "layer d (Dense): its class is Mine>Dense",
        ),
        (
            graph(("in", []), ("a", after("in")), ("b", after("in")), ("c", after("b"))),
            "layer in feeds layer a as well; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", after("a", "in"))),
            "layer c (Activation): it has 2 inputs; branches",
        ),
        (
            graph(("in", []), ("a", after("in")), ("c", [*after("a"), *after("a")])),
            "layer c (Activation): it is applied more than once",
        ),
        (
            graph(("in", []), ("c", after("in", training=True))),
            "layer c (Activation): it is always in training mode",
        ),
        (graph(("in", []), ("a", after("x"))), "it reads from x, which is not a layer"),
        (graph(("in", []), ("a", []), ("c", after("in"))), "2 layers without input"),
        (graph(("in", []), ("a", after("in")), outputs=[["in", 0, 0]]), "are not a chain"),
        (graph(("in", []), ("a", 7)), "layer a (Activation): malformed"),
    ],
)
def test_refused_models(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(tmp_path, [], config=config)


def test_input_sizes_must_be_fixed(tmp_path: Path) -> None:
    assert "only the batch axis may vary" in refusal(tmp_path, sound(), shape=(None,))
