"""Questions of other verifiers: our answers and seconds beside theirs, and `auto` beside methods.

    python -m benchmarks.peers [--data DIR] [--rows FILE] [--sets eev,marabou,eev-trained]
                               [--method auto[,NAME...]] [--images N] [--half even|odd]
                               [--seconds LIMIT] [--beat] [--certificates] [--networks DIR]
                               [--page docs/benchmarks.md] [--chart FILE]

Sets are those of `benchmarks.peer_questions`, or the families `eev`, `eev-trained`, `peers` and
`all`.  Each answer is a row of FILE; what has its row is not asked again, so that an interrupted
run goes on where it was.  Seconds are processor time on one core, in a process that has answered a
question of the set before; limits and slices of time are also measured by this clock, so that other
work on the machine changes neither the answers nor what `auto` does next.  `--half` asks every
second question of a set, so that settings can be chosen on one half.  `--beat` gives a method that
comes after another one at most as long as that took: enough for the regret table, which compares
`auto` with the best of all other methods.
`--certificates` asks for a certificate of each robust answer, too, and checks it.  `--page` writes
the table between the marks of a page, and `--chart` the chart beside it (matplotlib).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import bnncert
from benchmarks.deep import ask, certified, warm_up
from benchmarks.deep_questions import Question
from benchmarks.deep_tables import DECIDED
from benchmarks.peer_questions import FAMILIES, SETS, Place
from benchmarks.peer_tables import Row, beside, chart, regret, write_page

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"

#: Seconds of the unrecorded first answer of a set, and those that `--beat` adds.
WARM_SECONDS, GRACE = 1.0, 0.1


def replayed(question: Question, method: str) -> str:
    """Answer a question on which we contradict somebody, and say what the answer rests on."""
    result = bnncert.verify(
        question.network, question.region, question.label,
        rivals=question.rivals, ties=question.ties, method=method, timeout=question.seconds,
    )  # fmt: skip
    found = result.counterexample
    if found is None:
        return f"{result.status}, by {'+'.join(sorted({t.stage for t in result.targets}))}"
    place = found.point if found.exact is None else found.exact
    inside = isinstance(question.region, bnncert.Region) and question.region.contains(place)
    return f"class {found.best} at a point {'of' if inside else 'OUTSIDE'} the region"


def run_set(name: str, place: Place, arguments: argparse.Namespace, rows: list[Row]) -> None:
    """Ask the questions of one set that have no row yet."""
    done = {row.key: row for row in rows}
    methods: list[str] = arguments.method.split(",")
    warm: set[str] = set()
    try:
        questions = list(SETS[name](place))
    except FileNotFoundError as error:
        print(f"{name} is left out: {error.filename} does not exist")
        return
    for number, peer in enumerate(questions):
        if arguments.half and number % 2 != (arguments.half == "odd"):
            continue
        question = peer.question
        if arguments.seconds is not None:
            question = replace(question, seconds=arguments.seconds)
        for method in methods:
            key = (question.group, question.name, method)
            before = done.get(key)
            wanted = arguments.certificates and method == methods[0]
            if before is not None and (
                before.certificate or not wanted or before.status != "robust"
            ):
                continue
            asked, first = question, done.get((*key[:2], methods[0]))
            if arguments.beat and first is not None and first.status in DECIDED:
                asked = replace(question, seconds=min(question.seconds, first.seconds + GRACE))
            if method not in warm:
                warm.add(method)
                ask(replace(asked, seconds=min(WARM_SECONDS, asked.seconds)), method, 1)
            answer = ask(asked, method, 1)
            if wanted and answer.status == "robust":
                answer = certified(asked, answer, method, 1)
            remark = replayed(asked, method) if answer.wrong else ""
            made = {**asdict(answer), "run": method}
            row = Row(**made, set=name, number=number, theirs=peer.theirs, remark=remark)
            done[key] = row
            rows.append(row)
            print(answer.line(), remark, flush=True)
            with arguments.rows.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=Path, default=Path("peers.jsonl"))
    parser.add_argument("--sets", default="peers")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--images", type=int)
    parser.add_argument("--half", choices=("even", "odd"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--beat", action="store_true")
    parser.add_argument("--certificates", action="store_true")
    parser.add_argument("--networks", type=Path, default=Path("trained"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    names = [s for name in arguments.sets.split(",") for s in FAMILIES.get(name, (name,)) if s]
    for name in names:
        if name not in SETS:
            parser.error(f"no set {name}; expected some of {', '.join((*SETS, *FAMILIES))}")
    arguments.sets = tuple(dict.fromkeys(names))
    return arguments


def main() -> int:
    """Ask, print the tables; 1 if an answer contradicts another or a certificate is rejected."""
    with mock.patch("bnncert.deadline.time", SimpleNamespace(monotonic=time.process_time)):
        return run(parse())


def run(arguments: argparse.Namespace) -> int:
    """Do the work of `main`, whose deadlines are on the clock of the processor."""
    rows: list[Row] = []
    if arguments.rows.exists():
        rows = [Row(**json.loads(line)) for line in arguments.rows.read_text().splitlines()]
    place = Place(arguments.data, arguments.networks, arguments.images)
    warm_up(arguments.method.split(",")[0])
    for name in arguments.sets:
        run_set(name, place, arguments, rows)
    rows = [row for row in {row.key: row for row in rows}.values() if row.set in arguments.sets]
    print("\n" + beside(rows, arguments.method.split(",")[0]))
    if len({row.run for row in rows}) > 1:
        print("\n" + regret(rows))
    wrong = [row for row in rows if row.wrong]
    for row in wrong:
        print(f"{row.group}, {row.name}, {row.run}: {row.status}, {row.known} there: {row.remark}")
    if arguments.page is not None:
        write_page(arguments.page, rows)
    if arguments.chart is not None:
        chart(arguments.chart, rows)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
