"""Whole data sets: what is answered together, what is left to the engines, and the report.

    python benchmarks/whole_sets.py [--images 10000] [--alone 100] [--seconds 60]
                                    [--mnist mnist.npz] [--eev mnist-s-0.1.npz]

The bundled network at 0.1 px and, if its file is given, EEV's network at radius 0.1, on the test
images of MNIST (`x_test`, `y_test`).  All figures are processor seconds of this process.  Some of
what is answered together is also answered one by one; that time is multiplied.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import bnncert
from bnncert.model.loading import load_demo_network
from bnncert.model.network import Network
from bnncert.report.csv_export import write_csv
from bnncert.report.page.document import write_page
from bnncert.results.instance import Settings, attempt
from bnncert.results.interval_batches import in_batches
from bnncert.results.labelled_points import Selection, read_data
from bnncert.results.plan import plan_run
from bnncert.results.rows import Row
from bnncert.results.runner import run_plan
from bnncert.results.store import ResultsFile, read_recorded

Made = TypeVar("Made")


def timed(work: Callable[[], Made]) -> tuple[Made, float]:
    """Return what a function returns, and its processor seconds."""
    since = time.process_time()
    made = work()
    return made, time.process_time() - since


def measure(
    name: str, network: Network, radius: float, given: argparse.Namespace, folder: Path
) -> Path:
    """Answer all images of one network, print the seconds of each step; return the results."""
    data = read_data(f"{given.mnist}:x_test", None, network)
    chosen, settings = Selection(0, given.images), Settings(timeout=given.seconds)
    plan, planning = timed(
        lambda: plan_run(network, data, [radius], selection=chosen, settings=settings)
    )
    pairs, together = timed(
        lambda: [p for batch in in_batches(plan.networks, plan.instances) for p in batch]
    )
    rows = [answer.row for _, answer in pairs if answer is not None and answer.row is not None]
    left = [instance for instance, answer in pairs if answer is None]
    others, apart = timed(lambda: [attempt(network, i, 1).row for i in left])
    rows += [row for row in others if row is not None]
    path = folder / f"{name}.sqlite"

    def store() -> None:
        with ResultsFile(path) as results:
            results.add(*rows)
            # Nothing is left to answer: this writes the inputs and reads all rows.
            run_plan(plan, results)

    _, storing = timed(store)
    decided = [instance for instance, answer in pairs if answer is not None]
    sample = decided[:: max(1, len(decided) // given.alone)]
    _, one_by_one = timed(lambda: [attempt(network, i, 1) for i in sample])
    everything = planning + together + apart + storing
    alone = one_by_one * len(decided) / len(sample)
    print(f"{name}: {len(plan.instances)} images, {_counts(rows)}")
    print(f"  plan and classes      {planning:8.1f} s")
    print(f"  together   {len(pairs) - len(left):8d}   {together:8.1f} s")
    print(f"  one by one {len(left):8d}   {apart:8.1f} s")
    print(f"  rows                  {storing:8.1f} s")
    print(f"  in all                {everything:8.1f} s")
    print(f"  the first alone, about {alone:7.1f} s, {alone / together:.1f} times as long")
    return path


def _counts(rows: list[Row]) -> str:
    found = Counter(row.status.replace("_", " ") for row in rows)
    return ", ".join(f"{count} {status}" for status, count in found.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--alone", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mnist", type=Path, default=Path("mnist.npz"))
    parser.add_argument("--eev", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, network = Path(made), load_demo_network("sparse")
        assert network.pixel_step is not None
        results = measure("sparse", network, 0.1 * network.pixel_step, given, folder)
        if given.eev is not None:
            measure(given.eev.stem, bnncert.load(given.eev), 0.1, given, folder)

        def report() -> int:
            recorded = read_recorded(results)
            write_page(recorded, folder / "report.html")
            write_csv(recorded, folder / "csv")
            return len(recorded.rows)

        count, seconds = timed(report)
        print(f"report and CSV of {count} rows {seconds:8.1f} s")


if __name__ == "__main__":
    main()
