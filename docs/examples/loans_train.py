"""Train the small network that decides about loans, which docs/fairness.md asks questions about.

The table is synthetic: fourteen columns of integers, drawn at random, and decisions by the rule
:func:`rule`, which is biased against one value of the column "sex", with some noise.  ``bnncert
train`` learns it from columns that are scaled to [-1, 1]; then the scaling becomes part of the
first layer, so that the network in ``loans.json`` takes the numbers of the table as they are.
``loans_blind.json`` is the same network without the weights of "sex" and of the region.

Run ``python docs/examples/loans_train.py`` (needs ``bnncert[train]``); it takes some seconds and
writes both networks and ``loans_table.json`` beside this file.  Other versions of torch may end in
other weights; the files in the repository are those that the documentation is about.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bnncert

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

HERE = Path(__file__).resolve().parent

#: The columns with their first and last value.  All widths are powers of two, so that scaling is
#: exact.  Exactly one of the columns of a region is 1.
COLUMNS = {
    "age": (18, 82),
    "income": (0, 128),
    "debt": (0, 64),
    "employed_years": (0, 32),
    "late_payments": (0, 8),
    "savings": (0, 64),
    "loan": (0, 64),
    "term": (1, 33),
    "dependants": (0, 8),
    "owns_home": (0, 1),
    "sex": (0, 1),
    "north": (0, 1),
    "south": (0, 1),
    "west": (0, 1),
}
REGION = ("north", "south", "west")
LOW: FloatArray = np.array([low for low, _ in COLUMNS.values()], dtype=np.float64)
HIGH: FloatArray = np.array([high for _, high in COLUMNS.values()], dtype=np.float64)

ROWS, HIDDEN, EPOCHS, SEED = 6000, "16,8", 8, 0

#: Thresholds are rounded to multiples of 1/FINE: exact floats, and a short file.
FINE = 256


def table(generator: np.random.Generator, count: int) -> FloatArray:
    """Return random rows."""
    rows = generator.integers(LOW, HIGH + 1, (count, LOW.size)).astype(np.float64)
    rows[:, -3:] = np.eye(3)[generator.integers(0, 3, count)]
    return rows


def scaled(rows: FloatArray) -> FloatArray:
    """Return the columns scaled to [-1, 1]."""
    return np.asarray(2.0 * (rows - LOW) / (HIGH - LOW) - 1.0)


def rule(rows: FloatArray, generator: np.random.Generator) -> IntArray:
    """Return 1 for a loan that is granted; the rule is biased against sex 1."""
    weight = {
        "income": 1.6,
        "debt": -1.0,
        "employed_years": 0.6,
        "late_payments": -1.3,
        "savings": 0.7,
        "loan": -1.2,
        "owns_home": 0.3,
        "sex": -0.5,
    }
    total = sum(w * scaled(rows)[:, list(COLUMNS).index(name)] for name, w in weight.items())
    noise = 0.2 * generator.standard_normal(len(rows))
    return (np.asarray(total) + noise > 0).astype(np.int64)


def in_table_units(trained: bnncert.Network) -> bnncert.Network:
    """Return the network that takes the table's own numbers: W (s x + t) + b = (W s) x + (W t + b).

    Biases are rounded to a grid.
    """
    weights = [layer.weights.toarray().astype(np.float64) for layer in trained.layers]
    biases = [np.array(layer.bias) for layer in trained.layers]
    scale = 2.0 / (HIGH - LOW)
    biases[0] = biases[0] - weights[0] @ (1.0 + scale * LOW)
    weights[0] = weights[0] * scale
    weights.append(trained.output.weights)
    biases.append(trained.output.bias)
    fine = [np.round(b * FINE) / FINE for b in biases]
    return bnncert.Network.from_arrays(weights, fine, input_lo=LOW, input_hi=HIGH)


def without(network: bnncert.Network, names: tuple[str, ...]) -> bnncert.Network:
    """Return the network with zero weights for some columns."""
    weights = [layer.weights.toarray() for layer in network.layers] + [network.output.weights]
    weights[0][:, [list(COLUMNS).index(name) for name in names]] = 0
    biases = [*(layer.bias for layer in network.layers), network.output.bias]
    return bnncert.Network.from_arrays(weights, biases, input_lo=LOW, input_hi=HIGH)


def train() -> bnncert.Network:
    """Train on the scaled table with ``bnncert train``."""
    generator = np.random.default_rng(SEED)
    rows = table(generator, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "loans.npz", Path(folder) / "trained.npz"
        x = scaled(rows).astype(np.float32)
        np.savez(data, x=x, y=rule(rows, generator), input_lo=-1.0, input_hi=1.0)
        options = f"--hidden {HIDDEN} --zeros 0.3 --epochs {EPOCHS} --lr 0.02 --batch 100"
        command = [sys.executable, "-m", "bnncert", "train", "--data", str(data), "--out", str(out)]
        subprocess.run([*command, *options.split(), "--seed", str(SEED)], check=True)
        return bnncert.load(out)


def main() -> None:
    """Train, and write the networks and the description of the table."""
    network = in_table_units(train())
    generator = np.random.default_rng(SEED + 1)
    rows = table(generator, ROWS)
    agreement = np.mean(network.classify(rows) == rule(rows, generator))
    print(f"agrees with the rule on {100 * agreement:.1f} % of new rows")
    network.save(HERE / "loans.json")
    without(network, ("sex", *REGION)).save(HERE / "loans_blind.json")
    features = [
        {"name": name, "lo": low, "hi": high, "step": 1} for name, (low, high) in COLUMNS.items()
    ]
    lines = ",\n  ".join(json.dumps(feature) for feature in features)
    groups = json.dumps({"region": list(REGION)})
    text = f'{{"features": [\n  {lines}\n ],\n "one_hot": {groups}}}\n'
    (HERE / "loans_table.json").write_text(text)


if __name__ == "__main__":
    main()
