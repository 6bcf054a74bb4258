"""The notebook docs/examples/tour.ipynb runs, and prints what it shows.

After a change of what the program prints,

    python -m tests.test_tour

executes the notebook and stores what its cells print.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.console_blocks import agrees

TOUR = Path(__file__).resolve().parent.parent / "docs" / "examples" / "tour.ipynb"


def executed(notebook: Any) -> Any:
    """Return a copy of a notebook with the outputs of an execution in a fresh folder."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(notebook, timeout=120, resources=place)
        # The settings of the user's own IPython do not count.
        with mock.patch.dict(os.environ, IPYTHONDIR=f"{folder}/ipython"):
            done = client.execute()
    for cell in done.cells:
        # Libraries may warn, for example when fonts are listed for the first time.
        kept = [o for o in cell.get("outputs", ()) if o.get("name") != "stderr"]
        cell.update({"outputs": kept} if "outputs" in cell else {})
    return done


def lines(output: Any) -> list[str]:
    """Return the lines of text that an output shows."""
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return str(text).rstrip().splitlines()


def read() -> Any:
    return pytest.importorskip("nbformat").read(TOUR, as_version=4)


def test_the_tour_prints_what_it_shows() -> None:
    stored = read()
    fresh = executed(read())
    cells = [(a, b) for a, b in zip(stored.cells, fresh.cells, strict=True) if "outputs" in a]
    assert len(cells) >= 7
    for before, after in cells:
        kinds = [
            [sorted(o.get("data", [o.output_type])) for o in c.outputs] for c in (before, after)
        ]
        assert kinds[0] == kinds[1], before.source
        for shown, printed in zip(before.outputs, after.outputs, strict=True):
            assert agrees(lines(shown), lines(printed), by_auto=True), (
                before.source,
                lines(printed),
            )


def test_the_stored_tour_is_small_and_has_pictures() -> None:
    content = TOUR.read_text("utf-8")
    assert len(content) < 300_000
    assert content.count('"image/png"') >= 3
    assert not re.search(r"/(home|root|tmp|work)/", content)
    assert '"output_type": "error"' not in content


def store() -> None:
    """Execute the notebook and write its outputs, without what differs between machines."""
    import nbformat

    notebook = executed(read())
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    nbformat.write(notebook, TOUR)


if __name__ == "__main__":
    store()
