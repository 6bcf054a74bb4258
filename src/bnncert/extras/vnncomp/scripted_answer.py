"""One instance, answered in a process of its own.

The process enforces the time limit independently of the solvers, its memory can be measured, and
its crash is the answer `error` of one instance and does not end the others.

The competition measures the start-up.  So this module imports only what starts the process, and the
rest on use.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from bnncert.deadline import Deadline
from bnncert.engine.processes import answer_on_stdout, call_command, exit_after
from bnncert.errors import LONGEST_MESSAGE, FormatError, failure_text

if TYPE_CHECKING:
    from bnncert.engine.verdict import Result
    from bnncert.problem.vnnlib.query import Specification

#: Seconds after the time limit at which a process that has not answered is killed.
GRACE = 1.0


@dataclass(frozen=True, eq=False)
class CompetitionAnswer:
    """The answer to one instance."""

    #: sat, unsat, unknown, timeout or error.
    word: str
    #: The complete result; None after an error and after a process was stopped at the limit.
    result: Result | None = None
    #: The query, whose version has its own format of witnesses.
    query: Specification | None = None
    #: Why there is no verdict, if known.
    reason: str = ""
    #: Wall time of starting the process, loading and verifying.
    seconds: float = 0.0
    #: The stage that decided it.
    stage: str = ""
    #: Peak memory in bytes of its largest process, 0 if the system does not report it.  Linux
    #: includes the memory of the calling process, which should therefore be small.
    memory: int = 0

    @property
    def file_text(self) -> str:
        """The text of the result file; an `error` is written as `unknown`."""
        if self.result is not None:
            from bnncert.report.vnncomp_files import vnncomp_result

            return vnncomp_result(self.result, self.query)
        return ("timeout" if self.word == "timeout" else "unknown") + "\n"


def plain_or_packed(path: Path) -> Path:
    """Return the file, or the one with `.gz` if only that exists."""
    packed = path.with_name(path.name + ".gz")
    return packed if not path.exists() and packed.exists() else path


def listed_networks(text: str) -> list[tuple[str, str]]:
    """Read the networks of an instance: a file, or a list ``[('f', 'FILE'), ('g', 'FILE')]``.

    A single file has no name.
    """
    if not text.lstrip().startswith("["):
        return [("", text)]
    try:
        found = [(str(name), str(file)) for name, file in ast.literal_eval(text.strip())]
    except (SyntaxError, ValueError, TypeError):
        found = []
    if not found:
        example = "[('f', 'FILE'), ('g', 'FILE')]"
        raise FormatError(f"found {text!r}, expected a model or a list of models as {example}")
    return found


def named_models(text: str, folder: Path) -> tuple[tuple[str, Path], ...]:
    """Find the models of an instance; those that are not there are looked for in `folder`."""
    return tuple((name, _found(Path(file), folder)) for name, file in listed_networks(text))


def _found(file: Path, folder: Path) -> Path:
    here, there = plain_or_packed(file), plain_or_packed(folder / file)
    return there if there.exists() and not here.exists() else here


def run_instance(
    models: Path | Sequence[tuple[str, Path]],
    query: Path,
    timeout: float,
    *,
    method: str = "auto",
    memory: float = 4.0,
    certificate: Path | None = None,
    started: float | None = None,
    grace: float = GRACE,
) -> CompetitionAnswer:
    """Answer one query in a process of its own, which has ended when this returns.

    `models` are the files by the names of their networks, or the file of a single one.
    `timeout` is in seconds, for loading and verifying, and counts from `started`, a reading of
    `time.monotonic` (default: now); a process without an answer is killed `grace` seconds later.
    """
    Deadline(timeout)
    named = [("", models)] if isinstance(models, Path) else models
    begin = time.monotonic() if started is None else started
    request = {
        "models": [(name, str(file)) for name, file in named],
        "query": str(query),
        "end": begin + timeout,
        "method": method,
        "memory": memory,
        "certificate": None if certificate is None else str(certificate),
    }
    with tempfile.TemporaryFile() as complaints:
        ended = _run(json.dumps(request), begin + timeout + grace, complaints)
        seconds = time.monotonic() - begin
        try:
            result, stated, reason, stage = pickle.loads(ended.content)
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError):
            # The answer is missing or incomplete.
            word, reason = "timeout", "stopped at the limit"
            if not ended.late:
                word, reason = "error", _death(ended.code, complaints)
            return CompetitionAnswer(word, None, None, reason, seconds, "", ended.memory)
    word = "error" if result is None else result.vnncomp_word
    return CompetitionAnswer(word, result, stated, reason, seconds, stage, ended.memory)


class _Ended(NamedTuple):
    """A process that has ended: its output, exit code, peak memory, and whether it was too late."""

    content: bytes
    code: int
    memory: int
    late: bool


def _run(request: str, end: float, complaints: IO[bytes]) -> _Ended:
    """Run the process of a request, and kill it at `end` on the clock of `time.monotonic`."""
    process = subprocess.Popen(
        call_command(__name__, "answer_request", request),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        # In a new session, Ctrl-C does not reach the process, and a kill ends its children too.
        start_new_session=True,
    )
    heard: list[bytes] = []
    try:
        pipe = process.stdout
        assert pipe is not None
        listener = threading.Thread(target=lambda: heard.append(pipe.read()), daemon=True)
        listener.start()
        # The answer consists of objects of these modules, which are imported meanwhile.
        import bnncert.report.vnncomp_files  # noqa: F401

        listener.join(min(max(0.0, end - time.monotonic()), threading.TIMEOUT_MAX))
        late = listener.is_alive()
    finally:
        _kill(process)
        memory = _reap(process)
    listener.join()
    pipe.close()
    return _Ended(heard[0] if heard else b"", process.returncode, memory, late)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children."""
    try:
        if hasattr(os, "killpg"):
            # The group exists until the process is reaped, so the signal reaches no other process.
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        # The process has ended (some systems also raise for a group of ended processes).
        pass


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; return the peak memory in bytes of it or of one of its children."""
    if process.stdin is not None:
        process.stdin.close()
    if not hasattr(os, "wait4"):
        process.wait()
        return 0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def _death(code: int, complaints: IO[bytes]) -> str:
    """Return in one line how a process ended that gave no answer."""
    if code == -signal.SIGKILL:
        return "its process was killed (out of memory?)"
    how = f"its process died of signal {-code}" if code < 0 else f"its process ended with {code}"
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").strip().splitlines()
    return f"{how}: {' '.join(lines[-1].split())[:200]}" if lines else how


def answer_request(text: str) -> None:
    """Run in the process of :func:`run_instance`: write the answer to standard output and exit."""
    # Nothing is sent on the standard input: reading returns when the other end is closed.
    exit_after(lambda: os.read(0, 1), group=True)
    # Garbage collection while modules and files are loaded takes a tenth of the time for nothing.
    gc.disable()
    answer_on_stdout(lambda: _attempt(json.loads(text)))


def _attempt(request: dict[str, Any]) -> tuple[Result | None, Specification | None, str, str]:
    """Answer a request; any exception becomes the answer `error`."""
    try:
        from bnncert.extras.vnncomp.executed import answer

        return answer(request)
    except Exception as error:
        return None, None, failure_text(error)[:LONGEST_MESSAGE], ""
