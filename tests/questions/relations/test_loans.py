"""The worked example of docs/fairness.md: its answers, and independent checks of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bnncert
from bnncert.questions.relations.table_columns import TableColumns
from tests.test_examples import RawNetwork

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
REGION = (11, 12, 13)


def classes(name: str, rows: np.ndarray) -> np.ndarray:
    """Return the classes of rows, from the numbers of the file."""
    return np.asarray(np.argmax(RawNetwork.read(name).scores(rows), axis=1))


def random_rows(box: bnncert.Box, count: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    rows = generator.integers(box.lo, box.hi + 1, (count, box.size)).astype(np.float64)
    rows[:, REGION] = np.eye(3)[generator.integers(0, 3, count)]
    return rows


def test_the_answers_of_the_page() -> None:
    network, blind = (bnncert.load(EXAMPLES / f"loans{end}.json") for end in ("", "_blind"))
    columns = TableColumns.read(EXAMPLES / "loans_table.json", network.inputs)
    box, sex = columns.box(network, None), columns.find("sex")
    assert columns.find("region") == REGION and isinstance(sex, int)
    result = bnncert.fair(network, sex, box, one_hot=[REGION], names=columns.names, timeout=60)
    assert result.status == "fails" and result.pair is not None
    pair = np.array([result.pair.first, result.pair.second])
    assert result.pair.changed == (sex,)
    assert classes("loans.json", pair).tolist() == list(result.pair.classes)
    both = [sex, REGION]
    assert bnncert.fair(blind, both, box, timeout=60).status == "holds"
    rows = random_rows(box, 20_000)
    other = rows.copy()
    other[:, sex] = 1 - other[:, sex]
    other[:, REGION] = np.roll(other[:, REGION], 1, axis=1)
    assert np.array_equal(classes("loans_blind.json", rows), classes("loans_blind.json", other))


def test_random_rows_agree_with_the_proof_about_income() -> None:
    network = bnncert.load(EXAMPLES / "loans.json")
    columns = TableColumns.read(EXAMPLES / "loans_table.json", network.inputs)
    rows = random_rows(columns.box(network, None), 20_000)
    richer = rows.copy()
    richer[:, 1] = np.minimum(richer[:, 1] + 20, 128)
    before, after = classes("loans.json", rows), classes("loans.json", richer)
    assert np.count_nonzero(after > before) > 100
    assert not np.any((before == 1) & (after == 0))
