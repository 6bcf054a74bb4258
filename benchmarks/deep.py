"""Deep networks: what is decided, how soon, whether proved optima agree, and what is certified.

    python -m benchmarks.deep [--quick] [--parts pb25,trained,flips,width,bundled,speed]
                              [--data DIR] [--networks DIR] [--images 10] [--seconds 60]
                              [--seconds-large 10] [--processes 0]
                              [--before SRC] [--before-parts trained,bundled]
                              [--exact SECONDS] [--exact-python FILE] [--answers FILE]

Parts:

* `pb25`: three images, L1, L2 and L-inf balls just inside the smallest perturbation that changes
  the class, and at it, as somebody else has proved it.  DIR/pb25 has the networks and images.
* `trained`: networks with 3 and 4 hidden layers and real inputs, balls of 0.25, 0.5 and 1 pixel.
* `flips`: binarised inputs of which 1, 2 or 3 flip.
* `width`: 784-1024-1024-1024-10, binarised inputs of which 1 or 2 flip; random weights unless the
  folder of networks has a trained one.
* `bundled`: the two networks that come with the package, 0.25, 0.5 and 1 pixel.
* `speed`: nodes and patterns per second of processor time, by engine.

Networks are trained on first use (extra `train`) into the folder that `--networks` names; DIR also
has mnist.npz.  Questions with a radius of 1 pixel or more have the limit `--seconds-large`.  For
every robust answer the question is answered once more with a certificate, which is checked.
`--before` also runs the parts `--before-parts` with the package of another checkout; SRC is its
folder `src`.  `--exact` gives the questions of `pb25` to the pseudo-Boolean solver Exact with
that limit; `--exact-python` names an interpreter that has the package `exact`.  `--answers` also
writes one JSON line for each answer.  `--quick` asks one question of every kind, with a limit of
5 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import bnncert
from benchmarks import pseudo_boolean
from benchmarks.deep_questions import (
    PARTS,
    Question,
    Source,
    pb25_questions,
    random_network,
    width_questions,
)
from benchmarks.deep_tables import (
    BEFORE,
    DECIDED,
    EXACT,
    HEADS,
    OURS,
    Answer,
    as_markdown,
    as_text,
    remarks,
    summary,
)

#: Parts that another checkout answers, too, unless others are named.
COMPARED = "trained,bundled"

#: Seconds that numba has to compile before the first question.
COMPILATION_SECONDS = 120.0

#: Times the limit that solving and writing a certificate may take together.
CERTIFICATE_SHARE = 3.0


def ask(question: Question, method: str, processes: int) -> Answer:
    """Verify one question."""
    started, processor = time.monotonic(), processor_seconds()
    result = bnncert.verify(
        question.network,
        question.region,
        question.label,
        rivals=question.rivals,
        ties=question.ties,
        method=method,
        timeout=question.seconds,
        options=bnncert.Options(processes=processes),
    )
    seconds, spent = time.monotonic() - started, processor_seconds() - processor
    # Targets of one search share its counts.
    counts = [t.details for t in result.targets]
    return Answer(
        OURS,
        question.group,
        question.name,
        result.status,
        seconds,
        spent,
        question.seconds,
        stage="+".join(sorted({t.stage for t in result.targets if t.status in DECIDED})),
        nodes=max((int(c.get("nodes", 0)) for c in counts), default=0),
        patterns=max((int(c.get("patterns", 0)) for c in counts), default=0),
        known=question.known,
    )


def certified(question: Question, answer: Answer, method: str, processes: int) -> Answer:
    """Answer a question once more with a certificate, and check that."""
    from bnncert.kernel import RejectedError, UnreadableError, check
    from bnncert.proofs import claims as written

    writing = [0.0]
    write_proof = written.write_proof

    def timed(*arguments: Any, **named: Any) -> None:
        started = processor_seconds()
        try:
            write_proof(*arguments, **named)
        finally:
            writing[0] += processor_seconds() - started

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer.cert"
        started = processor_seconds()
        with mock.patch.object(written, "write_proof", timed):
            result = bnncert.verify(
                question.network,
                question.region,
                question.label,
                rivals=question.rivals,
                ties=question.ties,
                method=method,
                timeout=CERTIFICATE_SHARE * question.seconds,
                options=bnncert.Options(processes=processes),
                certificate=path,
            )
        solving = processor_seconds() - started - writing[0]
        if result.status != "robust" or result.certificate is None:
            why = ", ".join(result.notes) or result.status
            return replace(answer, certificate=f"not written: {why}")
        started = processor_seconds()
        try:
            check(path, question.network)
            verdict = "accepted"
        except (RejectedError, UnreadableError) as error:
            verdict = f"rejected: {error}"
        checking = processor_seconds() - started
    return replace(
        answer, certificate=verdict, solving=solving, writing=writing[0], checking=checking
    )


def answers_of(part: str, source: Source, arguments: argparse.Namespace) -> Iterator[Answer]:
    """Answer the questions of one part."""
    for question in PARTS[part](source):
        if arguments.only not in f"{question.group} {question.name}":
            continue
        answer = ask(question, arguments.method, arguments.processes)
        if answer.status == "robust" and arguments.certificates:
            answer = certified(question, answer, arguments.method, arguments.processes)
        yield answer
        if arguments.exact and part == "pb25":
            yield exact_answer(question, arguments.exact, arguments.exact_python)


def exact_answer(question: Question, seconds: float, interpreter: str) -> Answer:
    """Give the same question to Exact, in a process of its own."""
    constraints = pseudo_boolean.encode(question.network, question.region, question.label)
    started, processor = time.monotonic(), children_seconds()
    status = pseudo_boolean.solve_apart(constraints, seconds, interpreter)
    taken, spent = time.monotonic() - started, children_seconds() - processor
    group, name = question.group, question.name
    return Answer(EXACT, group, name, status, taken, spent, seconds, known=question.known)


def children_seconds() -> float:
    """Processor time of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def processor_seconds() -> float:
    """Processor time of this process and of the processes that it has started and that ended."""
    return time.process_time() + children_seconds()


def answers_before(part: str, arguments: argparse.Namespace) -> Iterator[Answer]:
    """Answer the questions of one part with the package of another checkout."""
    command = [sys.executable, "-m", "benchmarks.deep", "--parts", part, "--lines"]
    names = ("data", "networks", "images", "seconds", "seconds_large", "deltas", "processes")
    for name in (*names, "method", "only"):
        command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    environment = {**os.environ, "PYTHONPATH": str(arguments.before)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield replace(Answer(**json.loads(line)), run=BEFORE)
    if process.returncode:
        print(f"{part} could not be run with {arguments.before}")


def warm_up(asked_method: str) -> None:
    """Answer two small questions and ignore the answers.

    Modules are imported on use and numba compiles on first use, beside the search: the first
    question of the benchmark does not pay for that.
    """
    network = random_network((40, 40), 40)
    for norm, radius in (("linf", 1.1), ("l1", 2.5)):
        region = bnncert.Ball(norm, np.ones(40), radius, -1.0, 1.0)
        label = int(network.classify(region.center)[0])
        for method in (asked_method, "propagation"):
            # Another checkout may have no such method, nor the module below.
            with suppress(bnncert.InputError):
                ask(Question("", "", network, region, label, 1.0), method, 1)
    with suppress(ImportError):
        from bnncert.deadline import Deadline
        from bnncert.engine.methods.learning import is_ready

        is_ready(Deadline(COMPILATION_SECONDS))
    with suppress(ImportError):
        from bnncert.engine.search.patterns.enumeration import CELLS, ENUMERATION

        ENUMERATION.wait(COMPILATION_SECONDS)
        CELLS.wait(COMPILATION_SECONDS)


def speed(source: Source) -> tuple[list[str], list[list[str]]]:
    """Return nodes and patterns per second of processor time, by engine."""
    from bnncert.engine.search.patterns import enumeration

    questions = [q for q in pb25_questions(source) if q.name == "mnist 7 l1 inside"]
    questions += [q for q in width_questions(source) if "2 flips" in q.group][:1]
    rows = []
    for question in questions:
        for engine, packed in (("numpy", lambda _: None), ("numba", enumeration.pack)):
            with mock.patch.object(enumeration, "pack", packed):
                answer = ask(question, "propagation", 1)
            spent = max(answer.processor, 1e-3)
            rates = (f"{answer.nodes / spent:.0f}", f"{answer.patterns / spent:.0f}")
            name = f"{question.group} {question.name}"
            rows.append([name, engine, *rates, answer.status, f"{spent:.1f}"])
    return ["question", "engine", "nodes/s", "patterns/s", "answer", "processor s"], rows


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join((*PARTS, "speed")))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--networks", type=Path, default=Path("trained"))
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seconds-large", type=float, default=10.0)
    parser.add_argument("--deltas", default="0.25,0.5,1.0")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--before-parts", default=COMPARED)
    parser.add_argument("--exact", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--exact-python", default=sys.executable, metavar="FILE")
    parser.add_argument("--answers", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", help="Only questions whose names contain this.")
    parser.add_argument(
        "--no-certificates", dest="certificates", action="store_false", help="Write none."
    )
    parser.add_argument("--quick", action="store_true", help="One question of every kind.")
    parser.add_argument("--lines", action="store_true", help="Only one JSON line for each answer.")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.images, arguments.seconds, arguments.seconds_large = 1, 5.0, 5.0
    arguments.certificates = arguments.certificates and not arguments.lines
    for part in arguments.parts.split(","):
        if part not in (*PARTS, "speed"):
            parser.error(f"no part {part}; expected some of {', '.join((*PARTS, 'speed'))}")
    if arguments.exact and not pseudo_boolean.is_installed(arguments.exact_python):
        print(f"Exact is left out: {arguments.exact_python} has no package exact")
        arguments.exact = 0.0
    return arguments


def main() -> int:
    """Run the parts; 1 if an answer contradicts a proved optimum or a certificate is rejected."""
    arguments = parse()
    source = Source(
        arguments.data,
        arguments.networks,
        arguments.images,
        tuple(float(delta) for delta in arguments.deltas.split(",")),
        arguments.seconds,
        arguments.seconds_large,
    )
    warm_up(arguments.method)
    answers: list[Answer] = []
    parts = arguments.parts.split(",")
    for part in (p for p in parts if p in PARTS):
        runs = [answers_of(part, source, arguments)]
        if arguments.before is not None and part in arguments.before_parts.split(","):
            runs.insert(0, answers_before(part, arguments))
        for answer in (answer for run in runs for answer in run):
            answers.append(answer)
            line = json.dumps(asdict(answer))
            print(line if arguments.lines else answer.line(), flush=True)
            if arguments.answers is not None:
                with arguments.answers.open("a") as file:
                    file.write(line + "\n")
    if not arguments.lines:
        tables = [(HEADS, summary(answers))] if answers else []
        tables += [speed(source)] if "speed" in parts else []
        for form in (as_text, as_markdown):
            print("\n" + "\n\n".join(form(heads, rows) for heads, rows in tables))
        print("\n" + "\n".join(remarks(answers)))
    return int(any(answer.wrong for answer in answers))


if __name__ == "__main__":
    sys.exit(main())
