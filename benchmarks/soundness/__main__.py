"""Compare bnncert with independent oracles on random cases, and count what is wrong.

    python -m benchmarks.soundness [PART ...] [--seed 0] [--number N] [--workers 2] [--out FOLDER]

Each part is a module of this package with

* ``NUMBER``: how many answers it compares unless ``--number`` says otherwise (and ``MOST``, if a
  larger number would only repeat the same);
* ``case(seed, number) -> Outcome``: one case, the same for the same arguments.

Outcomes are appended to ``FOLDER/PART-SEED.jsonl``, one line for each case, and a second call with
the same seed continues from there.  The exit code is 1 if any answer was wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

from benchmarks.soundness.part import Outcome

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    # Each worker has one core; this is set before NumPy is loaded.
    os.environ.setdefault(name, "1")

PARTS = (
    "onnx_graphs",
    "brute_force",
    "learning",
    "convolutions",
    "between_methods",
    "certificates",
    "files",
    "explain",
    "faults",
    "compare",
    "monotone",
    "fair",
    "count",
    "shapes",
    "time_limits",
)


def one_case(part: str, seed: int, number: int) -> dict[str, object]:
    """Run one case in a worker; an exception that escapes is a wrong answer."""
    module = importlib.import_module(f"benchmarks.soundness.{part}")
    try:
        outcome: Outcome = module.case(seed, number)
    except Exception:
        text = traceback.format_exc().strip().replace("\n", " | ")
        outcome = Outcome(1, wrong=(f"uncaught exception: {text}",))
    return {"number": number, **asdict(outcome)}


class Totals:
    """The sums over all cases of one part."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.checked = 0
        self.tally: Counter[str] = Counter()
        self.largest: dict[str, float] = {}
        self.wrong: list[str] = []

    def add(self, row: dict[str, object]) -> None:
        """Add one recorded case."""
        number = row["number"]
        assert isinstance(number, int)
        self.numbers.add(number)
        self.checked += row["checked"]  # type: ignore[operator]
        self.tally.update(row["tally"])  # type: ignore[arg-type]
        self.wrong += [f"case {number}: {line}" for line in row["wrong"]]  # type: ignore[attr-defined]
        for key, value in row["largest"].items():  # type: ignore[attr-defined]
            self.largest[key] = max(value, self.largest.get(key, value))


def run_part(part: str, seed: int, number: int | None, workers: int, folder: Path) -> Totals:
    """Run cases until `number` answers have been compared; recorded ones count."""
    module = importlib.import_module(f"benchmarks.soundness.{part}")
    wanted = module.NUMBER if number is None else min(number, getattr(module, "MOST", number))
    workers = min(workers, getattr(module, "WORKERS", workers))
    path = folder / f"{part}-{seed}.jsonl"
    totals = Totals()
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                totals.add(json.loads(line))
            except ValueError:
                continue  # The last line of an interrupted run may be incomplete.
    started, shown, following = time.monotonic(), 0.0, 0
    pending: set[Future[dict[str, object]]] = set()
    with path.open("a", encoding="utf-8") as record, ProcessPoolExecutor(workers) as pool:
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            record.write("\n")
        try:
            while totals.checked < wanted or pending:
                while totals.checked < wanted and len(pending) < 2 * workers:
                    while following in totals.numbers:
                        following += 1
                    pending.add(pool.submit(one_case, part, seed, following))
                    following += 1
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    row = future.result()
                    record.write(json.dumps(row) + "\n")
                    record.flush()
                    totals.add(row)
                    for line in row["wrong"]:  # type: ignore[attr-defined]
                        print(
                            f"WRONG {part}, seed {seed}, case {row['number']}: {line}", flush=True
                        )
                if time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    seconds = shown - started
                    print(f"{part}: {totals.checked} of {wanted} after {seconds:.0f} s", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return totals


def main() -> int:
    """Run the chosen parts and print one summary for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench-soundness"))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; expected one of {', '.join(PARTS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for part in arguments.parts or PARTS:
        started = time.monotonic()
        totals = run_part(part, arguments.seed, arguments.number, arguments.workers, arguments.out)
        seconds = time.monotonic() - started
        print(
            f"{part}: {totals.checked} compared in {len(totals.numbers)} cases, "
            f"{len(totals.wrong)} wrong, {seconds:.0f} s in this run"
        )
        for name, count in sorted(totals.tally.items()):
            print(f"    {name}: {count}")
        for name, value in sorted(totals.largest.items()):
            print(f"    largest {name}: {value:.3f}")
        for line in totals.wrong[:20]:
            print(f"    WRONG {line}")
        wrong += len(totals.wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; the same call continues from here", file=sys.stderr)
        sys.exit(130)
