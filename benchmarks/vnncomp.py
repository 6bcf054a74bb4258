"""Answer a category of VNN-COMP: verdicts, times, certificates and memory of every instance.

    python benchmarks/vnncomp.py [--data DIR] [--seconds 480] [--only TEXT] [--certificates]
                                 [--method auto] [--out DIR]

DIR of --data holds instances.csv, onnx/ and vnnlib/ (plain or gzipped).  Each instance runs in a
process of its own, loading included, as `bnncert vnncomp` does it; with --out an interrupted run
goes on where it was.  With --certificates every `unsat` is checked by `bnncert.kernel`, in yet
another process, so that its memory is not taken for that of the next instance.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bnncert.cli.consoles import wide_console
from bnncert.errors import BnncertError
from bnncert.extras.vnncomp.category import (
    CategoryInstance,
    CategorySettings,
    certificate_path,
    read_instances,
    run_category,
)
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.model.loading import load
from bnncert.report.vnncomp_files import Line, category_table

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "vnncomp2023"


def show(done: int, total: int, line: Line | None) -> None:
    """Print each answer when it is there: the whole takes hours."""
    if line is not None:
        print(f"{done}/{total} {line.query_name}: {line.word} {line.seconds:.1f} s", flush=True)


def check_here(certificate: Path, model: Path) -> tuple[str, float]:
    """Return what the checker says, and its seconds (the model's loading not included)."""
    network = load(model)
    started = time.monotonic()
    try:
        report = check(certificate, network)
    except (RejectedError, UnreadableError) as error:
        return f"REJECTED: {error}", time.monotonic() - started
    return f"accepted: {report.verdict}, {report.leaves} leaves", time.monotonic() - started


def check_certificates(
    instances: Sequence[CategoryInstance], lines: Sequence[Line], folder: Path
) -> tuple[int, int]:
    """Check the certificate of every unsat; return how many are accepted, and of how many."""
    accepted = proved = 0
    context = multiprocessing.get_context("spawn")
    for instance, line in zip(instances, lines, strict=True):
        if line.word != "unsat":
            continue
        proved += 1
        if not line.certificate:
            print(f"{line.query_name}: no certificate ({line.reason})", flush=True)
            continue
        path = certificate_path(folder, line.file)
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            verdict, seconds = executor.submit(check_here, path, instance.model).result()
        accepted += verdict.startswith("accepted: robust")
        size = f"{line.certificate} bytes, written within {line.seconds:.1f} s"
        print(f"{line.query_name}: {size}; {verdict} in {seconds:.1f} s", flush=True)
    return accepted, proved


def print_totals(lines: Sequence[Line]) -> None:
    words = [line.word for line in lines]
    sat = [line for line in lines if line.word == "sat"]
    undecided = len(lines) - words.count("sat") - words.count("unsat")
    print(
        f"{words.count('sat')} sat, {words.count('unsat')} unsat, {undecided} undecided "
        f"({words.count('error')} of them errors) of {len(lines)}"
    )
    if sat:
        mean = math.fsum(line.seconds for line in sat) / len(sat)
        both = sum(line.replayed == "exact+onnxruntime" for line in sat)
        print(f"sat: mean {mean:.1f} s, slowest {max(line.seconds for line in sat):.1f} s")
        print(f"witnesses replayed in exact arithmetic and in onnxruntime: {both} of {len(sat)}")
    print(f"largest memory of a process: {max(line.memory for line in lines) / 1e9:.2f} GB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--only", default="", help="part of the query's name")
    parser.add_argument("--certificates", action="store_true")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--out", type=Path, help="folder to go on in (default: a temporary one)")
    arguments = parser.parse_args()
    out: Path = arguments.out or Path(tempfile.mkdtemp(prefix="bnncert-vnncomp-"))
    proofs = out / "certificates" if arguments.certificates else None
    console = wide_console()
    try:
        everything = read_instances(arguments.data / "instances.csv", arguments.seconds)
        instances = [i for i in everything if arguments.only in Path(i.vnnlib).name]
        settings = CategorySettings(method=arguments.method, certificates=proofs)
        lines = run_category(instances, out, settings, progress=show)
    except BnncertError as error:
        print(error, file=sys.stderr)
        return 2
    if not lines:
        print(f"no query with {arguments.only!r} in its name", file=sys.stderr)
        return 2
    console.print(category_table(lines))
    if proofs is not None:
        accepted, proved = check_certificates(instances, lines, proofs)
        print(f"unsat with a certificate that the checker accepts: {accepted} of {proved}")
    print_totals(lines)
    print(f"result files: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
