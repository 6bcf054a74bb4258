"""One instance, answered in a process of its own.

The process makes the time limit hold whatever a solver does, its memory can be measured, and its
crash is the answer `error` of one instance instead of the end of all.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from bnncert.competition.executed import as_executed
from bnncert.deadline import Deadline
from bnncert.errors import BnncertError
from bnncert.formats.vnnlib.reader import read_vnnlib
from bnncert.methods import Options
from bnncert.network import load
from bnncert.problem import from_vnnlib
from bnncert.report.witness import vnncomp_result
from bnncert.verdict import Result
from bnncert.verification import verify_specification

#: Seconds after the time limit at which a process that has not answered is killed.
GRACE = 1.0


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one instance.

    Attributes
    ----------
    word
        sat, unsat, unknown, timeout or error.
    result
        The answer in full; None after an error and after a process was stopped at the limit.
    reason
        Why there is no verdict, where something is to be said about it.
    seconds
        Wall time of everything: starting the process, loading, verifying.
    stage
        What decided it.
    memory
        Most memory in bytes that its largest process held, 0 if the system does not tell.  Linux
        counts in what the process that asks had held before, so that one had better be small.
    """

    word: str
    result: Result | None = None
    reason: str = ""
    seconds: float = 0.0
    stage: str = ""
    memory: int = 0

    @property
    def file_text(self) -> str:
        """The text of the result file; an `error` is written as `unknown`."""
        if self.result is not None:
            return vnncomp_result(self.result)
        return ("timeout" if self.word == "timeout" else "unknown") + "\n"


def run_instance(
    model: Path,
    query: Path,
    timeout: float,
    *,
    method: str = "auto",
    memory: float = 4.0,
    certificate: Path | None = None,
    started: float | None = None,
    grace: float = GRACE,
) -> Answer:
    """Answer one query in a process of its own, which has ended when this returns.

    Parameters
    ----------
    timeout
        Seconds for everything, loading included.
    certificate
        Where to write a certificate of the verdict.
    started
        Reading of `time.monotonic` from which the limit counts (default: now).
    grace
        Seconds after the limit at which a process without an answer is killed.
    """
    Deadline(timeout)
    begin = time.monotonic() if started is None else started
    request = {
        "model": str(model),
        "query": str(query),
        "end": begin + timeout,
        "method": method,
        "memory": memory,
        "certificate": None if certificate is None else str(certificate),
    }
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            # The search path of this process, without the folder that `-c` puts first.
            [sys.executable, "-c", _CHILD, json.dumps(request), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            # A session of its own: Ctrl-C reaches only this process, and a kill all of the other's.
            start_new_session=True,
        )
        heard: list[bytes] = []
        try:
            assert process.stdout is not None
            listener = threading.Thread(target=_listen, args=(process.stdout, heard), daemon=True)
            listener.start()
            left = begin + timeout + grace - time.monotonic()
            listener.join(min(max(0.0, left), threading.TIMEOUT_MAX))
            late = listener.is_alive()
        finally:
            _kill(process)
            usage = _reap(process)
        listener.join()
        process.stdout.close()
        seconds = time.monotonic() - begin
        content = heard[0] if heard else b""
        try:
            result, reason, stage = pickle.loads(content)
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError):
            # The answer is missing or incomplete.
            if late:
                return Answer("timeout", None, "stopped at the limit", seconds, "", usage)
            reason = _death(process.returncode, complaints)
            return Answer("error", None, reason, seconds, "", usage)
    word = "error" if result is None else result.vnncomp_word
    return Answer(word, result, reason, seconds, stage, usage)


#: What the process runs.  The first argument is the request, the others are the search path.
_CHILD = (
    "import sys\nsys.path[:] = sys.argv[2:]\n"
    "from bnncert.competition.answering import answer_request\nanswer_request(sys.argv[1])"
)


def _listen(pipe: IO[bytes], heard: list[bytes]) -> None:
    heard.append(pipe.read())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started."""
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
    """Wait for the end; return the most memory in bytes that it or one of its children held."""
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
    """Do the work of :func:`run_instance`'s process: answer on its standard output and end."""
    # What libraries print must not get into the answer.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    request: dict[str, Any] = json.loads(text)
    message: tuple[Result | None, str, str]
    try:
        message = _answer(request)
    except BnncertError as error:
        message = None, " ".join(str(error).split()), ""
    except MemoryError:
        message = None, "out of memory", ""
    except Exception as error:
        # Any exception becomes the answer `error`, so that the other instances continue.
        message = None, " ".join(f"{type(error).__name__}: {error}".split())[:300], ""
    pickle.dump(message, out)
    out.flush()
    # At once: threads of a solver may still run, and C++ aborts if they do at a normal exit.
    os._exit(0)


def _leave_with_parent() -> None:
    # Nothing is sent on this pipe: reading returns when the other end is closed.
    os.read(0, 1)
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _answer(request: dict[str, Any]) -> tuple[Result | None, str, str]:
    network = load(request["model"])
    specification = read_vnnlib(request["query"])
    certificate = request["certificate"]
    reason = ""
    if certificate is not None and len(from_vnnlib(network, specification)) != 1:
        certificate, reason = None, "no certificate: the query has several input regions"
    left = request["end"] - time.monotonic()
    if left <= 0:
        method = request["method"]
        return Result("timeout", (), 0.0, method), "loading took all the time", ""
    result = verify_specification(
        network,
        specification,
        method=request["method"],
        timeout=left,
        options=Options(processes=0, memory=request["memory"]),
        certificate=certificate,
    )
    if result.trusted is not None:
        reason = f"not certified: rests on trust in {result.trusted}"
    if result.counterexample is not None:
        executed = as_executed(network, specification, result)
        if executed is None:
            undecided = replace(result, status="unknown", counterexample=None)
            return undecided, "the counterexample is none for onnxruntime, which rounds", ""
        result = executed
    return result, reason, result.deciding_stage
