"""A results file in Python: counts for ``print``, and pictures of its answers in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from bnncert.model.text_table import PrintedAsTable, TextTable
from bnncert.regions.radii import radius_text
from bnncert.report.other_answers import other_lines
from bnncert.report.page.document import page_title
from bnncert.report.page.row_data import collect_details
from bnncert.report.statistics import Panel, Together, panels, together
from bnncert.results.rows import Evidence, OtherAnswer, Row
from bnncert.results.store import Recorded, read_recorded

#: The most answers that a notebook shows with pictures.
MOST_PICTURES = 12


@dataclass(frozen=True, eq=False)
class ResultsOverview(PrintedAsTable):
    """The answers of a results file; ``print`` and notebooks show a line for each radius.

    Notebooks also show inputs with their counterexamples.

    Attributes
    ----------
    recorded
        The rows, the networks and the titles of the file.
    """

    recorded: Recorded

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order of writing."""
        return self.recorded.rows

    @property
    def panels(self) -> list[Panel]:
        """The rows that may be compared: those of one network, norm and region."""
        return panels(self.recorded)

    @property
    def others(self) -> tuple[OtherAnswer, ...]:
        """Explanations, weight faults and counts, in the order of writing."""
        return self.recorded.others

    def evidence(self, row: Row) -> Evidence:
        """Return the input of a row, its counterexample, and the answers of all targets."""
        ((_, found),) = self.recorded.evidence([row])
        return found

    def __repr__(self) -> str:
        return f"ResultsOverview({self.recorded.path.name}, {self.recorded.count} answers)"

    def table(self) -> TextTable:
        """Return how many inputs are certified, falsified and undecided at each radius.

        Lines below the table are about answers of other kinds.
        """
        heads = ("question", "radius", "inputs", "certified", "falsified", "undecided")
        rows = [_line(panel, one) for panel in self.panels for one in together(panel)]
        above = f"{page_title(self.recorded)}: {self.recorded.count} answers"
        return TextTable(above, heads, rows, other_lines(self.recorded))

    def _repr_html_(self) -> str:
        return f"{self.table().html()}{self._gallery()}"

    def _gallery(self) -> str:
        """Return inputs with their counterexamples as pictures; without any, other inputs."""
        found = collect_details(self.recorded, self.recorded.path, MOST_PICTURES)
        by_number = {row.rowid: row for row in self.rows}
        figures = []
        for rowid, entry in found.entries.items():
            row, shown = by_number[rowid], entry.get("pictures", [])[:2]
            images = "".join(
                f'<img src="data:image/png;base64,{found.pictures[k]}" width="56" height="56" '
                f'style="image-rendering:pixelated;margin-right:2px" alt="{name}">'
                for k, name in zip(shown, ("input", "counterexample"), strict=False)
                if k is not None
            )
            if images:
                step = self.recorded.network(row.key.model_hash).pixel_step
                radius = radius_text(row.key.radius, row.key.norm, step)
                words = f"{row.key.input_index}: {row.status.replace('_', ' ')} at {radius}"
                figures.append(
                    f'<figure style="margin:0.3em;text-align:center">{images}'
                    f"<figcaption>{escape(words)}</figcaption></figure>"
                )
        if not figures:
            return ""
        return f'<div style="display:flex;flex-wrap:wrap">{"".join(figures)}</div>'


def _line(panel: Panel, one: Together) -> list[str]:
    count = one.count
    numbers = (count.robust, one.falsified, count.undecided)
    shares = (f"{n} ({100 * n / count.instances:.1f} %)" for n in numbers)
    return [panel.name, panel.radius_text(count.radius), str(count.instances), *shares]


def read_results(path: str | Path) -> ResultsOverview:
    """Read a results file of `run`, `experiment`, or of `explain`, `faults` and `count`.

    Parameters
    ----------
    path
        The SQLite file.

    Returns
    -------
    ResultsOverview
        The answers; a notebook shows them with pictures.

    Raises
    ------
    InputError
        If the file is not a results file, or contains no answer yet.

    Examples
    --------
    >>> import tempfile
    >>> import bnncert
    >>> from bnncert.results.labelled_points import Data, Selection
    >>> from bnncert.results.plan import plan_run
    >>> from bnncert.results.runner import run_plan
    >>> from bnncert.results.store import ResultsFile
    >>> from bnncert.model.loading import load_demo_images, load_demo_network
    >>> images = load_demo_images()
    >>> data = Data(images.pixels, images.labels.astype("int64"), "images")
    >>> plan = plan_run(load_demo_network(), data, [0.0001], selection=Selection(count=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ResultsFile(f"{folder}/results.sqlite") as results:
    ...         finished = run_plan(plan, results)
    ...     found = bnncert.read_results(f"{folder}/results.sqlite")
    >>> found
    ResultsOverview(results.sqlite, 2 answers)
    >>> [row.status for row in found.rows]
    ['robust', 'robust']
    """
    return ResultsOverview(read_recorded(Path(path)))
