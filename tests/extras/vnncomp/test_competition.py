"""Categories of VNN-COMP: answers known by hand, and what crashes, limits and kills leave."""

from __future__ import annotations

import csv
import gzip
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert import FormatError, InputError
from bnncert.engine.verdict import Result
from bnncert.extras.vnncomp import scripted_answer as answering
from bnncert.extras.vnncomp.category import CategorySettings, read_instances, run_category
from bnncert.extras.vnncomp.executed import answer as answer_of
from bnncert.extras.vnncomp.executed import as_executed
from bnncert.extras.vnncomp.scripted_answer import CompetitionAnswer, run_instance
from bnncert.kernel import check
from bnncert.model.description import ModelDescription
from bnncert.model.formats.model_files import write_description
from bnncert.report.vnncomp_files import Line, ResultsTable, totals
from tests.competition_files import (
    assert_witness,
    diamond,
    executed,
    parse_result,
    square,
    write_hard,
)
from tests.in_process import Outcome, command_line, without_progress

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "vnncomp2023"

#: Query, time limit, answer.
EXPECTED = {
    "far": ("60", "sat"),
    "near": ("60", "unsat"),
    "short": ("0.01", "timeout"),
    "broken": ("60", "error"),
    "odd": ("60", "error"),
}


def write_files(folder: Path) -> None:
    """Write models and queries, some of them gzipped."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "vnnlib").mkdir()
    diamond().save(folder / "onnx" / "net.onnx")
    content = (folder / "onnx" / "net.onnx").read_bytes()
    (folder / "onnx" / "packed.onnx.gz").write_bytes(gzip.compress(content))
    (folder / "onnx" / "half.onnx").write_bytes(content[: len(content) // 2])
    (folder / "vnnlib" / "far.vnnlib").write_text(square(0.6))
    (folder / "vnnlib" / "near.vnnlib.gz").write_bytes(gzip.compress(square(0.3).encode()))
    (folder / "vnnlib" / "short.vnnlib").write_text(square(0.4))
    (folder / "vnnlib" / "broken.vnnlib").write_text(square(0.3))
    (folder / "vnnlib" / "odd.vnnlib").write_text(square(0.3) + "(assert (>= X_0")


def write_category(folder: Path) -> Path:
    """Write a category with every answer in it; return its list."""
    write_files(folder)
    models = {"near": "packed", "broken": "half"}
    rows = [
        f"onnx/{models.get(name, 'net')}.onnx,vnnlib/{name}.vnnlib,{limit}\n"
        for name, (limit, _) in EXPECTED.items()
    ]
    (folder / "instances.csv").write_text("".join(rows))
    return folder / "instances.csv"


@dataclass(frozen=True)
class Done:
    """A category that was run."""

    csv: Path
    out: Path
    lines: list[Line]
    seen: list[tuple[int, int, str]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("vnncomp") / "squares"
    path = write_category(folder)
    seen: list[tuple[int, int, str]] = []
    lines = run_category(
        read_instances(path),
        folder / "out",
        progress=lambda n, total, line: seen.append((n, total, line.word if line else "")),
    )
    return Done(path, folder / "out", lines, seen)


@pytest.fixture
def category(tmp_path: Path) -> Path:
    return write_category(tmp_path / "squares")


# --- the list --------------------------------------------------------------------------------


def test_a_list_as_editors_leave_it(tmp_path: Path) -> None:
    write_files(tmp_path / "set")
    path = tmp_path / "set" / "instances.csv"
    text = '\r\n"onnx/net.onnx","vnnlib/far.vnnlib",480.0\r\n\r\n'
    text += "onnx/packed.onnx, vnnlib/near.vnnlib ,1e2"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    first, second = read_instances(path)
    assert (first.category, first.onnx, first.vnnlib) == (
        "set",
        "onnx/net.onnx",
        "vnnlib/far.vnnlib",
    )
    assert (first.timeout, second.timeout) == (480.0, 100.0)
    assert (first.models[0][1].name, first.query.name) == ("net.onnx", "far.vnnlib")
    assert (second.models[0][1].name, second.query.name) == ("packed.onnx.gz", "near.vnnlib.gz")
    assert second.name == "packed_near.txt"
    assert [i.timeout for i in read_instances(path, 7.0)] == [7.0, 7.0]


def test_a_row_may_list_several_networks(tmp_path: Path) -> None:
    write_files(tmp_path)
    path = tmp_path / "instances.csv"
    path.write_text(
        "\"[('f', 'onnx/net.onnx'), ('g', 'onnx/packed.onnx')]\",vnnlib/far.vnnlib,100\n"
    )
    (found,) = read_instances(path)
    assert [(name, file.name) for name, file in found.models] == [
        ("f", "net.onnx"),
        ("g", "packed.onnx.gz"),
    ]
    assert found.name == "f_g_far.txt"
    assert [file.name for file in found.files] == ["net.onnx", "packed.onnx.gz", "far.vnnlib"]


def test_a_proof_that_float32_could_break_is_no_answer(
    category: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong unsat costs fifteen times what a right one is worth."""
    instance = next(i for i in read_instances(category) if "near" in i.vnnlib)
    request = {
        "query": str(instance.query),
        "models": [("", str(instance.models[0][1]))],
        "certificate": None,
        "end": time.monotonic() + 60,
        "method": "auto",
        "memory": 4.0,
    }
    monkeypatch.setattr("gc.freeze", lambda: None)
    first = answer_of(request)[0]
    assert first is not None and first.status == "robust"

    def verify(*arguments: Any, **keywords: Any) -> Result:
        found = bnncert.verify(*arguments, **keywords)
        return replace(found, status="unknown") if "arithmetic" in keywords else found

    monkeypatch.setattr("bnncert.extras.vnncomp.executed.verify", verify)
    found, _, reason, _ = answer_of(request)
    assert found is not None and found.status == "unknown"
    assert reason == "proved for real numbers, but not for every float32 execution"


def test_no_two_instances_share_a_result_file(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "vnnlib" / "far-2.vnnlib").write_text(square(0.7))
    (tmp_path / "Far.vnnlib").write_text(square(0.7))
    row = "onnx/net.onnx,vnnlib/far.vnnlib,5\n"
    more = "onnx/net.onnx,vnnlib/far-2.vnnlib,5\nonnx/net.onnx,Far.vnnlib,5\n"
    (tmp_path / "i.csv").write_text(row + row + more + row)
    names = [i.name.lower() for i in read_instances(tmp_path / "i.csv")]
    assert len(set(names)) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GOOD\nonnx/net.onnx,vnnlib/far.vnnlib\n", ":2: found 2 field(s), expected onnx,vnnlib"),
        ("GOOD\n\nonnx/net.onnx,vnnlib/far.vnnlib,5,6\n", ":3: found 4 field(s)"),
        ("onnx,vnnlib,timeout\n", ":1: time limit is 'timeout'"),
        ("onnx/net.onnx,vnnlib/far.vnnlib,0\n", ":1: time limit is '0'"),
        ("onnx/net.onnx,vnnlib/far.vnnlib,-3\n", ":1: time limit is '-3'"),
        ("onnx/net.onnx,vnnlib/far.vnnlib,nan\n", ":1: time limit is 'nan'"),
        ("onnx/net.onnx,vnnlib/far.vnnlib,inf\n", ":1: time limit is 'inf'"),
        ("onnx/net.onnx,vnnlib/far.vnnlib,\n", ":1: time limit is ''"),
        ("GOOD\nonnx/none.onnx,vnnlib/far.vnnlib,5\n", ":2: no such file: 'onnx/none.onnx'"),
        ("onnx/net.onnx,vnnlib/none.vnnlib,5\n", ":1: no such file: 'vnnlib/none.vnnlib'"),
        ("onnx/net.onnx,,5\n", ":1: no such file: ''"),
        ("onnx/net.onnx,vnnlib,5\n", ":1: no such file: 'vnnlib'"),
        ('GOOD\n"onnx/net.onnx,5\n', ":2: not CSV"),
        ("[('f' 5],vnnlib/far.vnnlib,5\n", ":1: found \"[('f' 5]\", expected a model or a list"),
        ("[],vnnlib/far.vnnlib,5\n", ":1: found '[]', expected a model or a list"),
        ("\n\n", ": holds no instance"),
        ("", ": holds no instance"),
    ],
)
def test_a_broken_list_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    write_files(tmp_path)
    path = tmp_path / "i.csv"
    path.write_text(text.replace("GOOD", "onnx/net.onnx,vnnlib/far.vnnlib,5"))
    with pytest.raises(FormatError) as refused:
        read_instances(path)
    assert str(refused.value).startswith(f"{path}{words}")
    assert "\n" not in str(refused.value)


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none.csv: no such file"):
        read_instances(tmp_path / "none.csv")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match=r"x.csv:1: not UTF-8 text"):
        read_instances(tmp_path / "x.csv")
    with pytest.raises(InputError, match="timeout is 0"):
        read_instances(tmp_path / "x.csv", 0.0)


# --- answers ---------------------------------------------------------------------------------


def test_every_instance_has_its_answer(done: Done) -> None:
    assert [line.word for line in done.lines] == [word for _, word in EXPECTED.values()]
    assert done.seen[0] == (0, 5, "")
    assert [(n, total) for n, total, _ in done.seen[1:]] == [(n, 5) for n in range(1, 6)]
    by_query = {line.query_name: line for line in done.lines}
    assert by_query["far"].replayed == "exact+onnxruntime"
    assert by_query["near"].stage != ""
    assert "half.onnx" in by_query["broken"].reason
    assert "odd.vnnlib" in by_query["odd"].reason
    assert "\n" not in by_query["broken"].reason + by_query["odd"].reason
    # The limit and two seconds, in which nothing but starting Python fits.
    assert by_query["short"].seconds < 2.01
    if sys.platform == "linux":
        assert all(line.memory > 2e7 for line in done.lines)
    assert totals(done.lines).startswith("1 sat, 1 unsat, 0 unknown, 1 timeout, 2 error of 5 in ")


def test_result_files_are_those_of_the_competition(done: Done) -> None:
    found = {line.query_name: parse_result(done.out / line.file) for line in done.lines}
    words = {
        "far": "sat",
        "near": "unsat",
        "short": "timeout",
        "broken": "unknown",
        "odd": "unknown",
    }
    assert {name: parsed.word for name, parsed in found.items()} == words
    model = (done.csv.parent / "onnx" / "net.onnx").read_bytes()
    assert_witness(found["far"], model, [0.4, -0.6], [1.6, 0.6])


def test_the_table_begins_as_that_of_the_competition(done: Done) -> None:
    with (done.out / "results.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:3] for row in rows] == [
        ["squares", f"onnx/{model}.onnx", f"vnnlib/{name}.vnnlib"]
        for model, name in (
            *(("net", "far"), ("packed", "near"), ("net", "short")),
            *(("half", "broken"), ("net", "odd")),
        )
    ]
    assert [row[4] for row in rows] == [word for _, word in EXPECTED.values()]
    for row, line in zip(rows, done.lines, strict=True):
        assert float(row[3]) == 0
        assert float(row[5]) == pytest.approx(line.seconds, abs=1e-3)
    assert sorted(p.name for p in done.out.iterdir()) == sorted(
        ["results.csv", *(line.file for line in done.lines)]
    )


def test_the_witness_has_the_outputs_of_the_model_itself(tmp_path: Path) -> None:
    plain = diamond().describe()
    soft = ModelDescription(
        stages=plain.stages, input_shape=plain.input_shape, output_transform="softmax"
    )
    write_description(soft, tmp_path / "soft.onnx")
    (tmp_path / "far.vnnlib").write_text(square(0.6))
    request: dict[str, Any] = {"models": [("", tmp_path / "soft.onnx")]}
    request |= {"query": tmp_path / "far.vnnlib", "end": time.monotonic() + 60}
    request |= {"method": "auto", "memory": 1.0, "certificate": None}
    result, _, reason, _ = answer_of(request)
    assert result is not None and (result.status, reason) == ("not_robust", "")
    (tmp_path / "result.txt").write_text(CompetitionAnswer("sat", result).file_text)
    found = parse_result(tmp_path / "result.txt")
    assert_witness(found, (tmp_path / "soft.onnx").read_bytes(), [0.4, -0.6], [1.6, 0.6])
    # Probabilities: the competition compares them with those that the model gives.
    assert float(sum(found.outputs)) == pytest.approx(1, abs=1e-6)


def test_a_counterexample_that_onnxruntime_does_not_see_is_no_sat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rounding:
        dtype = np.float32

        def scores(self, point: Any) -> Any:
            return np.array([1.0, 0.0, 0.0])

    diamond().save(tmp_path / "net.onnx")
    (tmp_path / "far.vnnlib").write_text(square(0.6))
    network = bnncert.load(tmp_path / "net.onnx")
    specification = bnncert.read_vnnlib(tmp_path / "far.vnnlib")
    result = bnncert.verify(network, specification)
    assert result.status == "not_robust"
    kept = as_executed([network], specification, result)
    assert kept is not None and kept.status == "not_robust"
    monkeypatch.setattr("bnncert.engine.replay.OnnxRuntime.of", lambda network: Rounding())
    assert as_executed([network], specification, result) is None


def test_a_model_of_the_competition(tmp_path: Path) -> None:
    if not SHARED.exists():
        pytest.skip("the instances of VNN-COMP 2023 are not in the shared data")
    instance = next(
        i
        for i in read_instances(SHARED / "instances.csv")
        if "model_30_idx_7040_eps_15" in i.vnnlib
    )
    answer = run_instance(instance.models[0][1], instance.query, 100.0, method="attack")
    assert (answer.word, answer.stage) == ("sat", "attack")
    (tmp_path / "result.txt").write_text(answer.file_text)
    found = parse_result(tmp_path / "result.txt")
    outputs = executed(gzip.decompress(instance.models[0][1].read_bytes()), found.inputs)
    specification = bnncert.read_vnnlib(instance.query)
    assert specification.holds(found.inputs, [Fraction(v) for v in outputs])


# --- going on --------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the queries that are asked from now on; each of them is `unknown`."""
    queries: list[str] = []

    def stub(model: Path, query: Path, timeout: float, **_: Any) -> CompetitionAnswer:
        queries.append(query.name.split(".")[0])
        return CompetitionAnswer("unknown", Result("unknown", (), 0.0, "auto"))

    monkeypatch.setattr("bnncert.extras.vnncomp.category.run_instance", stub)
    yield queries
    queries.clear()


def test_what_is_done_is_not_done_again(done: Done, asked: list[str]) -> None:
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in done.out.iterdir()}
    seen: list[tuple[int, int]] = []
    lines = run_category(
        read_instances(done.csv), done.out, progress=lambda n, total, _: seen.append((n, total))
    )
    assert asked == []
    assert seen == [(5, 5)]
    # What the file holds: seconds with three digits.
    assert [replace(line, seconds=0.0) for line in lines] == [
        replace(line, seconds=0.0) for line in done.lines
    ]
    after = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in done.out.iterdir()}
    assert after == before


def test_another_question_is_asked_anew(category: Path, asked: list[str]) -> None:
    out = category.parent / "out"
    run_category(read_instances(category), out)
    assert asked == list(EXPECTED)
    asked.clear()

    def again(**changes: Any) -> list[str]:
        asked.clear()
        run_category(read_instances(category), out, **changes)
        return list(asked)

    assert again() == []
    assert again(again=True) == list(EXPECTED)
    category.write_text(category.read_text().replace("far.vnnlib,60", "far.vnnlib,61"))
    assert again() == ["far"]
    (category.parent / "vnnlib" / "short.vnnlib").write_text(square(0.45))
    assert again() == ["short"]
    diamond_bytes = (category.parent / "onnx" / "net.onnx").read_bytes()
    (category.parent / "onnx" / "packed.onnx.gz").write_bytes(gzip.compress(diamond_bytes + b""))
    (category.parent / "onnx" / "half.onnx").write_bytes(b"another")
    assert set(again()) <= {"near", "broken"} and "broken" in asked
    (out / "net_odd.txt").unlink()
    assert again() == ["odd"]
    assert again(settings=CategorySettings(method="attack")) == list(EXPECTED)
    assert again(settings=CategorySettings(method="attack")) == []
    assert len(ResultsTable(out / "results.csv").lines()) == 5


def test_certificates_that_were_not_asked_for_before_are_made(
    category: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def stub(model: Path, query: Path, timeout: float, **options: Any) -> CompetitionAnswer:
        made.append(query.name.split(".")[0])
        path = options["certificate"]
        if path is not None:
            path.write_bytes(b"proof")
        kept = None if path is None else str(path)
        return CompetitionAnswer("unsat", Result("robust", (), 0.0, "auto", certificate=kept))

    monkeypatch.setattr("bnncert.extras.vnncomp.category.run_instance", stub)
    instances, out = read_instances(category)[:2], category.parent / "out"
    settings = CategorySettings(certificates=category.parent / "proofs")
    run_category(instances, out)
    lines = run_category(instances, out, settings)
    assert made == ["far", "near"] * 2
    assert [line.certificate for line in lines] == [5, 5]
    (category.parent / "proofs" / "net_far.bnncert").unlink()
    run_category(instances, out, settings)
    assert made == ["far", "near"] * 2 + ["far"]
    run_category(instances, out)
    assert len(made) == 5


def test_a_foreign_table_is_left_alone(category: Path, asked: list[str]) -> None:
    out = category.parent / "out"
    out.mkdir()
    (out / "results.csv").write_text("cat,a.onnx,b.vnnlib,0.1,sat,2\n")
    for again in (False, True):
        with pytest.raises(FormatError, match=r"results.csv:1: not a row that bnncert vnncomp"):
            run_category(read_instances(category), out, again=again)
    assert asked == []
    assert (out / "results.csv").read_text() == "cat,a.onnx,b.vnnlib,0.1,sat,2\n"


# --- processes -------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")


def ask(child: str, monkeypatch: pytest.MonkeyPatch, limit: float = 30.0) -> CompetitionAnswer:
    """Run another program in place of the one that answers."""
    monkeypatch.setattr(answering, "call_command", lambda *_: [sys.executable, "-c", child])
    return run_instance(Path("model"), Path("query"), limit)


@posix
@pytest.mark.parametrize(
    ("child", "reason"),
    [
        ("import os; os.abort()", "its process died of signal 6"),
        ("import os; os.kill(os.getpid(), 9)", "its process was killed (out of memory?)"),
        ("raise SystemError('no\\n  luck')", "its process ended with 1: luck"),
        ("print('sat', flush=True)", "its process ended with 0"),
        ("import sys; sys.exit(3)", "its process ended with 3"),
    ],
)
def test_a_crash_is_an_error_with_a_reason(
    child: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ask(child, monkeypatch)
    assert (answer.word, answer.reason, answer.result) == ("error", reason, None)
    assert answer.file_text == "unknown\n"


@posix
def test_half_an_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pickle.dumps((Result("robust", (), 0.0, "auto"), None, "", "interval"))
    child = "import os; os.write(1, {!r})"
    assert ask(child.format(whole), monkeypatch).word == "unsat"
    assert ask(child.format(whole[:-3]), monkeypatch).word == "error"


@posix
def test_the_limit_holds_for_all_processes_of_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    child = (
        "import subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(other.pid))\ntime.sleep(60)"
    )
    started = time.monotonic()
    answer = ask(child, monkeypatch, limit=1.0)
    assert time.monotonic() - started < 3
    assert (answer.word, answer.reason) == ("timeout", "stopped at the limit")
    assert answer.file_text == "timeout\n"
    assert gone(int(note.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_memory_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small = ask("pass", monkeypatch).memory
    large = ask("x = b'x' * 500_000_000", monkeypatch).memory
    # The system counts in what this process had held when it started the other.
    assert 1e6 < small < max(own, 1e8) * 1.1
    assert 5e8 < large < max(own, 6e8) * 1.1


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends in this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


#: The command line; a parent may have told its children to ignore Ctrl-C.
COMMAND = """
import signal
from bnncert.cli.program import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_what_a_signal_leaves(category: Path, sent: signal.Signals, asked: list[str]) -> None:
    folder = category.parent
    write_hard(folder / "onnx" / "hard.onnx", folder / "vnnlib" / "hard.vnnlib")
    rows = category.read_text().splitlines()
    category.write_text(f"{rows[1]}\nonnx/hard.onnx,vnnlib/hard.vnnlib,300\n{rows[0]}\n")
    out = folder / "out"
    arguments = (str(category), "--out", str(out), "--method", "milp")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "vnncomp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(bnncert.__file__).parents[2])},
    )
    until = time.monotonic() + 60
    table = out / "results.csv"
    while not (table.exists() and (at_work := children(process.pid))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(sent)
    printed, complaint = process.communicate(timeout=60)
    assert all(map(gone, at_work))
    lines = ResultsTable(table).lines()
    assert [(line.query_name, line.word) for line in lines] == [("near", "unsat")]
    if sent == signal.SIGINT:
        complaint = without_progress(complaint)
        assert (process.returncode, complaint) == (130, "bnncert: interrupted\n")
        last = printed.splitlines()[-1]
        assert last == f"1 of 3 instances are in {out}; the same command continues from there"
    else:
        assert process.returncode == -signal.SIGKILL
    run_category(read_instances(category), out, CategorySettings(method="milp"))
    assert asked == ["hard", "far"]


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what runs `bnncert` inside this process."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    return command_line(monkeypatch, capfd)


def test_the_command_with_a_certificate(category: Path, run: Callable[..., Outcome]) -> None:
    folder = category.parent
    command = ("vnncomp", str(category), "--out", str(folder / "out"), "--only", "near")
    answer = run(*command, "--certificate", str(folder / "proofs"), "--timeout", "50")
    assert (answer.code, answer.err) == (0, "")
    cells = next(line.split() for line in answer.out.splitlines() if line.startswith("near"))
    proof = folder / "proofs" / "packed_near.bnncert"
    assert cells[1] == "unsat"
    assert str(proof.stat().st_size) in cells
    assert "0 sat, 1 unsat, 0 unknown, 0 timeout, 0 error of 1 in" in answer.out
    report = check(proof, bnncert.load(folder / "onnx" / "packed.onnx.gz"))
    assert report.verdict == "robust"
    with (folder / "out" / "results.csv").open(newline="") as file:
        assert [row[6] for row in csv.reader(file)] == ["50.0"]


def test_the_table_shows_the_reason(
    done: Done, run: Callable[..., Outcome], asked: list[str]
) -> None:
    answer = run("vnncomp", str(done.csv), "--out", str(done.out))
    assert (answer.code, answer.err, asked) == (0, "", [])
    assert f"5 of 5 instances are in {done.out} already" in answer.out.replace("\n", "")
    assert "half.onnx" in answer.out
    assert "1 sat, 1 unsat, 0 unknown, 1 timeout, 2 error of 5 in" in answer.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "nothing"), "no query with 'nothing' in its name"),
        (("--method", "magic"), "no method 'magic'"),
        (("--timeout", "0"), "timeout is 0"),
        (("--memory-limit", "-1"), "memory is -1"),
        (("--out", "FILE"), "File exists"),
        (("--certificate", "FILE"), "File exists"),
    ],
)
def test_bad_input_is_one_line(
    category: Path,
    run: Callable[..., Outcome],
    asked: list[str],
    arguments: tuple[str, str],
    words: str,
) -> None:
    given = [a.replace("FILE", str(category)) for a in arguments]
    answer = run("vnncomp", str(category), "--out", str(category.parent / "out"), *given)
    assert (answer.code, answer.out, asked) == (2, "", [])
    assert answer.err.startswith("bnncert: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err


def test_a_broken_list_ends_the_command(category: Path, run: Callable[..., Outcome]) -> None:
    category.write_text("onnx/net.onnx;vnnlib/far.vnnlib;60\n")
    answer = run("vnncomp", str(category), "--out", str(category.parent / "out"))
    assert answer.code == 2
    assert answer.err == (
        f"bnncert: {category}:1: found 1 field(s), expected onnx,vnnlib,timeout\n"
    )
    assert not (category.parent / "out").exists()


def test_one_instance_leaves_a_margin(
    category: Path, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[float, float, float]] = []

    def stub(model: Path, query: Path, timeout: float, **options: Any) -> CompetitionAnswer:
        used = time.monotonic() - options["started"]
        limits.append((timeout, options["grace"], used))
        assert result.read_text() == "unknown\n"
        return CompetitionAnswer("timeout")

    monkeypatch.setattr("bnncert.extras.vnncomp.scripted_answer.run_instance", stub)
    folder, result = category.parent, category.parent / "result.txt"
    files = (str(folder / "onnx/packed.onnx"), str(folder / "vnnlib/far.vnnlib"), str(result))
    assert run("vnncomp-instance", *files, "480").code == 0
    assert result.read_text() == "timeout\n"
    started = str(time.time() - 7)
    assert run("vnncomp-instance", *files, "10", started).code == 0
    assert [limit[:2] for limit in limits] == [(478.0, 0.5), (9.5, 0.125)]
    assert limits[0][2] < 5 < 7 <= limits[1][2] < 12
    refused = run("vnncomp-instance", *files, "inf")
    assert (refused.code, result.read_text()) == (2, "unknown\n")
