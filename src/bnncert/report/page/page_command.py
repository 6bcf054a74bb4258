"""The command that asks about one row again.

    bnncert verify MODEL --input FILE --index I --label L --norm N --radius R ...

Files are named without their folders, because pages are shared with others.  MODEL and POINTS stand
for files that the results do not name: those of random networks and points.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from bnncert.engine.methods import REGISTRY
from bnncert.results.radii import COUNTED, read_radius
from bnncert.results.rows import InstanceKey, NetworkRecord, Row

#: The files of the bundled networks, by the end of their path.
_BUNDLED = {f"bnncert/data/mnist_{name}.npz": f"demo:{name}" for name in ("sparse", "dense")}


def command_parts(network: NetworkRecord, row: Row) -> tuple[str, str]:
    """Return the command before and after `I --label L`, the number of the input and its label.

    Many rows have the same two texts, which keeps the page small.
    """
    key = row.key
    method, *chosen = key.method.split(" ")
    options = dict(part.split("=", 1) for part in chosen if "=" in part)
    # Only `bound` takes a solver, and it answers with the same bound.
    question = "bound" if "solver" in options else key.question
    points = _points(row.data)
    before = [f"bnncert {question} {shlex.quote(_model(network.source))} {points}"]
    if row.scale:
        before.append(row.scale)
    number = "" if points.endswith(":") else " --index "
    after = [f"--norm {key.norm} --radius {_length(key.radius, key.norm, network)}"]
    if key.value is not None:
        after.append(f"--value={key.value!r}")
    if key.within is not None:
        after.append(f"--within {_length(key.within, 'linf', network)}")
    if key.grid_step is not None:
        after.append(f"--grid {_length(key.grid_step, 'linf', network)}")
    after.append(f"--targets {shlex.quote(key.targets)} --method {shlex.quote(method)}")
    after += [f"--{name} {shlex.quote(value)}" for name, value in options.items()]
    after += _settings(network, key, question)
    return " ".join(before) + number, " ".join(["", *after])


def _settings(network: NetworkRecord, key: InstanceKey, question: str) -> list[str]:
    """Return the options that differ from the defaults."""
    found = ["--timeout none" if key.timeout is None else f"--timeout {key.timeout:g}"]
    if question == "verify" and key.ties != "violation":
        found.append(f"--ties {shlex.quote(key.ties)}")
    method = key.method.split(" ")[0]
    if key.seed and any(m.name == method and "seed" in m.reads for m in REGISTRY.all()):
        found.append(f"--seed {key.seed}")
    if key.sign_zero != "plus":
        found.append(f"--sign-zero {shlex.quote(key.sign_zero)}")
    own = (network.input_lo, network.input_hi)
    ends = key.clip.split(",")
    if len(ends) == 2 and ends != [repr(end) for end in own]:
        found.append(f"--clip {shlex.quote(ends[0])} {shlex.quote(ends[1])}")
    return found


def _model(source: str) -> str:
    path = source.replace("\\", "/")
    if path.startswith("demo:"):
        return path
    bundled = next((name for end, name in _BUNDLED.items() if path.endswith(end)), None)
    if bundled is not None:
        return bundled
    return "MODEL" if not path or path.startswith("random:") else PurePosixPath(path).name


def _points(data: str) -> str:
    """Return the option for the points, up to their number."""
    if data == "demo" or data.startswith("demo:"):
        return "--input demo:"
    name = PurePosixPath(data.replace("\\", "/")).name if data else "POINTS"
    return f"--input {shlex.quote(name)}"


def _length(value: float, norm: str, network: NetworkRecord) -> str:
    """Return a radius in px if that gives the same number, else in input units."""
    if norm in COUNTED:
        return repr(value) if norm == "contrast" else f"{value:g}"
    step = network.pixel_step
    if step:
        text = f"{value / step:.6g}px"
        radius = read_radius(text)
        if radius is not None and radius.number * step == value:
            return text
    return repr(value)
