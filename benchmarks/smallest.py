"""Smallest perturbations of integer pixels: optima that somebody else proved, and bundled networks.

    python -m benchmarks.smallest [--data DIR] [--parts pb25,bundled] [--norms l0,l1,l2,linf]
        [--seconds 1800] [--only TEXT] [--images 20] [--seconds-bundled 120] [--method auto]
        [--exact SECONDS --exact-python PYTHON]

* `pb25`: DIR/pb25 has two networks and three images (`benchmarks/pb25.py` converts them).  The
  smallest perturbation in each norm is compared with the proved one.  The certificate of the
  certified side is checked as `bnncert check` does it, and the witness is classified by the numbers
  of the Chainer archive.  With `--exact` the pseudo-Boolean solver Exact gets the two sides of the
  proved optimum as two questions with this many seconds each; it is told the optimum, and
  `bnncert` has to find it.
* `bundled`: the smallest L-inf perturbation in whole pixels of the first images of both bundled
  networks, and how many are closed within the limit.

`cpu s` is processor time of this process and of its workers.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bnncert
from benchmarks import pb25, pseudo_boolean
from bnncert.kernel import RejectedError, UnreadableError
from bnncert.kernel import check as check_certificate
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.questions.radius.radius_answer import SmallestResult
from bnncert.questions.radius.smallest import smallest

NORMS = ("l0", "l1", "l2", "linf")


@dataclass(frozen=True)
class Answer:
    """What the search found for one image and norm, and how it was checked."""

    name: str
    found: SmallestResult
    cpu: float
    proof: str
    witness: str
    known: int | None = None

    def line(self) -> str:
        """Return the answer as a line of the table."""
        found = self.found
        cells = [found.minimum, found.certified, found.falsified, self.known]
        numbers = "".join(f"{'-' if c is None else c:>10}" for c in cells)
        checked = f"{self.proof:<12} {self.witness}"
        return f"{self.name:<22}{numbers}{self.cpu:>9.1f}{found.seconds:>9.1f}  {checked}"


HEADER = (
    f"{'':<22}{'minimum':>10}{'certified':>10}{'falsified':>10}{'proved':>10}"
    f"{'cpu s':>9}{'wall s':>9}  certificate  witness"
)


def processor_seconds() -> float:
    """Return the processor time of this process and of its workers that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def search(
    network: bnncert.Network,
    ball: bnncert.Ball | bnncert.L0Ball,
    label: int,
    method: str,
    seconds: float,
) -> tuple[SmallestResult, float, str]:
    """Return the result, its processor time and what the checker says about the certificate."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.bnncert"
        started = processor_seconds()
        found = smallest(network, ball, label, method=method, timeout=seconds, certificate=path)
        taken = processor_seconds() - started
        if found.certificate is None:
            return found, taken, "none"
        try:
            check_certificate(path, network)
        except (RejectedError, UnreadableError) as error:
            return found, taken, f"rejected: {error}"
    return found, taken, "accepted"


def proved_optima(arguments: argparse.Namespace) -> Iterator[Answer]:
    """Search the optima of pb25."""
    folder = arguments.data / "pb25"
    if not folder.is_dir():
        print(f"pb25 is left out: {folder} does not exist")
        return
    solved: list[tuple[bool, float]] = []
    for case in pb25.CASES:
        network = pb25.integer_network(folder, case.network)
        point = pb25.pixels_of(folder, case).astype(np.float64)
        for norm in arguments.norms.split(","):
            name = f"{case.name} {norm}"
            if arguments.only not in name:
                continue
            limit, box = arguments.seconds, (0.0, 255.0)
            ball: bnncert.Ball | bnncert.L0Ball
            if norm == "l0":
                ball = bnncert.L0Ball(point, 0, *box, grid=bnncert.Grid(1.0))
            else:
                ball = bnncert.Ball(norm, point, 0.0, *box, grid=bnncert.Grid(1.0))
            found, cpu, proof = search(network, ball, case.label, arguments.method, limit)
            yield Answer(
                name, found, cpu, proof, _replayed(folder, case, norm, found), case.optimum(norm)
            )
            if arguments.exact:
                solved.append(_exact(folder, case, norm, arguments))
    if solved:
        decided, cpu = sum(s[0] for s in solved), sum(s[1] for s in solved)
        print(f"Exact: {decided} of {len(solved)} optima proved, {cpu:.1f} cpu s")


def _replayed(folder: Path, case: pb25.Case, norm: str, found: SmallestResult) -> str:
    """Classify the witness by the numbers of the archive, and measure its distance in integers."""
    if found.witness is None:
        return "none"
    pixels = np.rint(found.witness.point).astype(np.int64)
    if not np.array_equal(pixels, found.witness.point) or pixels.min() < 0 or pixels.max() > 255:
        return "not an image of 8 bits"
    away = np.abs(pixels - pb25.pixels_of(folder, case))
    distance = {
        "l0": np.count_nonzero(away),
        "l1": away.sum(),
        "l2": (away**2).sum(),
        "linf": away.max(),
    }[norm]
    answer = pb25.classify(folder, case.network, pixels)
    if distance != found.falsified or answer == case.label:
        return f"WRONG: class {answer} at distance {distance}"
    return f"class {answer}"


def _exact(
    folder: Path, case: pb25.Case, norm: str, arguments: argparse.Namespace
) -> tuple[bool, float]:
    """Give both sides of the proved optimum to Exact; return whether both are right, and the time.

    Its answers and processor times are printed.
    """
    network, label = pb25.network(folder, case)
    optimum, zeros = case.optimum(norm), np.zeros(pb25.PIXELS)
    right, total = True, 0.0
    for count, expected in ((optimum - 1, "robust"), (optimum, "not_robust")):
        ball: bnncert.Ball | bnncert.L0Ball
        if norm == "l0":
            ball = bnncert.L0Ball(zeros, count, 0.0, 255.0)
        else:
            # Half a step more, so that no rounding decides.
            radius = (count + 0.5) ** 0.5 if norm == "l2" else count + 0.5
            ball = bnncert.Ball(norm, zeros, radius, 0.0, 255.0)
        question = pseudo_boolean.encode(network, ball, label)
        started = processor_seconds()
        status = pseudo_boolean.solve_apart(question, arguments.exact, arguments.exact_python)
        taken = processor_seconds() - started
        print(f"  Exact, {case.name} {norm} up to {count}: {status}, {taken:.1f} cpu s", flush=True)
        right, total = right and status == expected, total + taken
    return right, total


def bundled_images(arguments: argparse.Namespace) -> Iterator[Answer]:
    """Search the smallest L-inf perturbation of the first images of both bundled networks."""
    images = load_demo_images()
    for kind in ("sparse", "dense"):
        network = load_demo_network(kind)  # type: ignore[arg-type]
        answers = []
        for index in range(arguments.images):
            name = f"{kind} image {index} linf"
            if arguments.only not in name:
                continue
            # As a model gets its pixels.
            point = images.point(index).astype(np.float32).astype(np.float64)
            grid = bnncert.Grid(1 / 127.5, -1.0)
            ball = bnncert.Ball("linf", point, 0.0, -1.0, 1.0, grid=grid)
            label, limit = int(images.labels[index]), arguments.seconds_bundled
            found, cpu, proof = search(network, ball, label, arguments.method, limit)
            witness = "none"
            if found.witness is not None:
                witness = f"class {int(network.classify(found.witness.point)[0])}"
            answers.append(Answer(name, found, cpu, proof, witness))
            yield answers[-1]
        closed = sum(a.found.is_closed for a in answers)
        print(f"{kind}: {closed} of {len(answers)} closed in {arguments.seconds_bundled:g} s each")


PARTS = {"pb25": proved_optima, "bundled": bundled_images}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--parts", default="pb25,bundled")
    parser.add_argument("--norms", default=",".join(NORMS))
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--only", default="", help="only questions whose name has this text")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--seconds-bundled", type=float, default=120.0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--exact", type=float, default=0.0, help="seconds for each side")
    parser.add_argument("--exact-python", default="python", help="interpreter that has `exact`")
    arguments = parser.parse_args()
    if arguments.exact and not pseudo_boolean.is_installed(arguments.exact_python):
        parser.error(f"{arguments.exact_python} cannot import `exact`")
    for part in arguments.parts.split(","):
        started, right, total = time.monotonic(), 0, 0
        cpu = 0.0
        print(f"{part}\n{HEADER}", flush=True)
        for answer in PARTS[part](arguments):
            print(answer.line(), flush=True)
            cpu, total = cpu + answer.cpu, total + 1
            right += answer.known is not None and answer.found.minimum == answer.known
        taken = time.monotonic() - started
        compared = f"{right} of {total} as proved, " if part == "pb25" else ""
        print(f"{compared}{cpu:.1f} cpu s, {taken:.1f} s\n", flush=True)


if __name__ == "__main__":
    main()
