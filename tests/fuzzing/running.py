"""Reading broken files in a process of its own, with limited memory and time."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bnncert.errors import BnncertError
from tests.fuzzing.corpus import Format, formats
from tests.fuzzing.mutations import change

#: Seconds for one file, and bytes that one process may have in its address space.
SECONDS, MEMORY = 10.0, 4 * 2**30

#: Kilobytes by which reading files of a few kilobytes may enlarge the process.
GROWTH = 1_000_000


@dataclass
class Tally:
    """What became of broken files.

    Attributes
    ----------
    counts
        By format and outcome, accepted or refused.
    wrong
        One line for each file that made a reader fail in another way than by one clear line.
    seconds
        The longest time that one file took.
    gigabytes
        The most memory that the process used.
    """

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    gigabytes: float = 0.0


class _TooLongError(BaseException):
    pass


def _ring(number: int, frame: object) -> None:
    raise _TooLongError


def broken_file(seed: int, name: str, form: Format) -> bytes:
    """Return the broken file that belongs to a seed and a format."""
    random = Random(f"{seed} {name}")
    content, other = random.choice(form.files), random.choice(form.files)
    return change(random, form.inside, content, other)


def read_broken(names: list[tuple[str, int]], folder: Path) -> Tally:
    """Read broken files (format, seed) in a child process, and return what became of them.

    Parameters
    ----------
    folder
        Where the valid files are made, and the broken ones for a moment; the next call with the
        same folder finds the valid ones made.
    """
    tally = Tally()
    known = formats(folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(names, known, folder, writing)
        os._exit(0)
    os.close(writing)
    started: tuple[str, int] | None = None
    with os.fdopen(reading, encoding="utf-8") as lines:
        for line in lines:
            name, seed, outcome, text, seconds, gigabytes = json.loads(line)
            tally.gigabytes = max(tally.gigabytes, gigabytes)
            if outcome == "begun":
                started = name, seed
                continue
            started = None
            tally.seconds = max(tally.seconds, seconds)
            if outcome == "wrong":
                tally.wrong.append(f"{name}, file {seed}: {text}")
            key = f"{name}: {outcome}"
            tally.counts[key] = tally.counts.get(key, 0) + 1
    _, status = os.waitpid(child, 0)
    if status:
        at = f"{started[0]}, file {started[1]}" if started else "after the last file"
        how = os.waitstatus_to_exitcode(status)
        tally.wrong.append(
            f"{at}: the process ended with {how} (a crash, or too long in a library)"
        )
    return tally


def _child(
    names: list[tuple[str, int]], known: dict[str, Format], folder: Path, writing: int
) -> None:
    """Read file by file; each outcome is one line in the pipe."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _ring)
    with os.fdopen(writing, "w", encoding="utf-8") as out:
        for name, seed in names:
            form = known[name]
            path = folder / f"broken{form.suffix}"
            path.write_bytes(broken_file(seed, name, form))
            print(json.dumps([name, seed, "begun", "", 0.0, 0.0]), file=out, flush=True)
            # The system ends a process that stays in a library, where no signal is looked at.
            used = int(time.process_time() + 3 * SECONDS) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (used, resource.RLIM_INFINITY))
            outcome, text, seconds = _one(form, path)
            gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            row = [name, seed, outcome, text, seconds, gigabytes]
            print(json.dumps(row), file=out, flush=True)
            path.unlink(missing_ok=True)


def _one(form: Format, path: Path) -> tuple[str, str, float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    outcome, text = "accepted", ""
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        form.read(path)
    except BnncertError as error:
        outcome, text = "refused", str(error)
        if "\n" in text or len(text) > 1010:
            outcome, text = "wrong", f"not one short line: {text[:200]!r}"
    except BaseException as error:
        trace = traceback.format_exception(error)
        outcome = "wrong"
        text = " | ".join(part.strip() for part in trace[-3:]).replace("\n", " ")[-600:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.monotonic() - begun
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if growth > GROWTH:
        outcome, text = "wrong", f"took {growth / 1e6:.1f} GB: {text}"
    return outcome, text, seconds
