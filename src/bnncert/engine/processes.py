"""Processes: workers that end with their parent, single calls in a process of their own, threads.

A terminal sends Ctrl-C to all processes of a group.  Only the parent process handles it.  Each
worker holds one end of a connection, its lifeline, and exits when the other end is closed, which
also happens when the parent process is killed.

A call in a process of its own can be killed at the time limit.  Some solvers check the time limit
too rarely: one iteration on a large program takes minutes, and the setup has no limit.  A thread
cannot be killed, but a process can.  The process exits when its parent exits: on Linux by a signal
of the kernel, elsewhere by a timer at the limit.

Linear algebra has a number of threads of its own: small matrices are faster with one.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple, NoReturn

from threadpoolctl import ThreadpoolController

from bnncert.deadline import Deadline
from bnncert.errors import BnncertError

#: Seconds to wait for a worker that was told to end.
JOIN = 0.5

#: The code of a process that calls a function of a module on texts.  The other arguments are the
#: search path of the parent, which replaces that of the process.
_CALL = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import sys
texts, sys.path[:] = sys.argv[1:{end}], sys.argv[{end}:]
from {module} import {name}
{name}(*texts)"""


def usable_cores() -> int:
    """Return the number of cores that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back inside the block; processes that are started in it do not hear it at all."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Otherwise Python starts the resource tracker with the first process and unblocks Ctrl-C then.
    resource_tracker.ensure_running()
    heard: list[int] = []
    handler = None
    if threading.current_thread() is threading.main_thread():
        # The mask holds for this thread only: another one may take the signal, and Python would
        # still raise here, between the start of a process and what it has to be told.
        handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


def become_worker(lifeline: Connection) -> None:
    """Ignore Ctrl-C in this process, and exit when the other end of the lifeline is closed."""
    # This is also for platforms that cannot block signals, and for processes started by this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing is sent on the connection: this returns when the other end is closed.
    exit_after(lambda: lifeline.poll(None))


def exit_after(wait: Callable[[], object], *, group: bool = False) -> None:
    """Exit this process, or its whole `group` of processes, as soon as `wait` has returned."""

    def run() -> None:
        try:
            wait()
        finally:
            if group and hasattr(os, "killpg"):
                os.killpg(os.getpgrp(), signal.SIGKILL)
            os._exit(1)

    threading.Thread(target=run, daemon=True).start()


class WorkerProcess(NamedTuple):
    """A process, the connection for messages, and the one whose closing ends the process."""

    process: SpawnProcess
    connection: Connection
    lifeline: Connection

    @staticmethod
    def start(target: Callable[..., None], *arguments: object) -> WorkerProcess:
        """Run `target(connection, *arguments)` in a new process, which ends with this one."""
        context = get_context("spawn")
        with interrupts_later():
            ours, theirs = context.Pipe()
            watched, lifeline = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(watched, target, theirs, *arguments), daemon=True
            )
            process.start()
            # Only the process itself may keep its ends open; otherwise its end is not noticed.
            theirs.close()
            watched.close()
        return WorkerProcess(process, ours, lifeline)

    def kill(self) -> None:
        """End the process at once, without waiting for its end."""
        self.lifeline.close()
        self.connection.close()
        self.process.kill()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the process has ended, at most `seconds`."""
        self.process.join(seconds)


class WorkerTeam:
    """Worker processes that have all exited when the block is left."""

    def __init__(self) -> None:
        self.members: list[WorkerProcess] = []

    def __enter__(self) -> WorkerTeam:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.members:
            worker.kill()
        for worker in self.members:
            worker.join(JOIN)
        self.members = []

    def start(self, target: Callable[..., None], *arguments: object) -> WorkerProcess | None:
        """Start one more worker, or return None if the system cannot start a process."""
        try:
            worker = WorkerProcess.start(target, *arguments)
        except (OSError, MemoryError):
            return None
        self.members.append(worker)
        return worker

    def end(self, worker: WorkerProcess) -> None:
        """End one worker."""
        worker.kill()
        worker.join(JOIN)
        self.members.remove(worker)


def _work(lifeline: Connection, target: Callable[..., None], *arguments: object) -> None:
    become_worker(lifeline)
    target(*arguments)


def call_command(module: str, name: str, *texts: str) -> list[str]:
    """Return the command line of a process that calls a function of a module on some texts."""
    code = _CALL.format(module=module, name=name, end=1 + len(texts))
    return [sys.executable, "-c", code, *texts, *sys.path]


def answer_on_stdout(answer: Callable[[], Any]) -> NoReturn:
    """Pickle the result of `answer` to the standard output, and end the process."""
    out = os.fdopen(os.dup(1), "wb")
    # The output of libraries must not be part of the answer.
    os.dup2(2, 1)
    pickle.dump(answer(), out)
    out.flush()
    # Threads of a solver may still run, and C++ aborts at a normal exit if they do.
    os._exit(0)


#: Seconds after the limit at which a process without an answer is killed.
GRACE = 0.2

#: The option of Linux's prctl(2) for the signal that is sent when the parent ends.
_PR_SET_PDEATHSIG = 1


def killable_call(
    function: Callable[..., Any], arguments: tuple[Any, ...], deadline: Deadline
) -> Any:
    """Return `function(*arguments)` from another process, or None if the time limit is reached.

    The function must be picklable, which means that it is defined at the top level of a module.
    """
    left = deadline.remaining()
    if left <= 0:
        return None
    wait = left + GRACE if left < float("inf") else None
    request = pickle.dumps((wait, os.getpid(), function, arguments))
    process = subprocess.Popen(
        call_command(__name__, "serve_killable_call"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Pickling a large program takes time, too.
        answer, _ = process.communicate(
            request, None if wait is None else max(deadline.remaining() + GRACE, 0.0)
        )
    except subprocess.TimeoutExpired:
        return None
    finally:
        # This is also reached after Ctrl-C.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    if process.returncode != 0 or not answer:
        return None
    value = pickle.loads(answer)
    if isinstance(value, BnncertError):
        raise value
    return value


def serve_killable_call() -> None:
    """Answer one request on standard output."""
    answer_on_stdout(_requested)


def _requested() -> Any:
    wait, parent, function, arguments = pickle.load(sys.stdin.buffer)
    _end_with(parent, wait)
    try:
        return function(*arguments)
    except BnncertError as error:
        return error


def _end_with(parent: int, wait: float | None) -> None:
    """End this process when its parent exits or stops waiting."""
    if wait is not None and hasattr(signal, "setitimer"):
        # Without a handler the signal ends the process, even inside a library.
        signal.setitimer(signal.ITIMER_REAL, wait)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


#: Smaller Newton systems gain little from more threads, and lose much on a busy machine, where
#: threads wait for each other at every product.
WORTH_THREADS = 6000


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(size: int) -> AbstractContextManager[object]:
    """Return a context in which matrices of this size are factorised with a good thread count."""
    return nullcontext() if size >= WORTH_THREADS else at_most_threads(1)


def at_most_threads(count: int) -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses at most `count` threads."""
    limit: AbstractContextManager[object] = _controller().limit(limits=count, user_api="blas")
    return limit
