"""A category of VNN-COMP: its list of models, queries and time limits, and the answers to all.

Missing answers are computed, and each is written at once.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Options
from bnncert.errors import FormatError, InputError
from bnncert.extras.vnncomp.scripted_answer import listed_networks, plain_or_packed, run_instance
from bnncert.model.formats.atomic import make_folder, write_atomically
from bnncert.model.formats.file_content import DEFAULT_LIMITS, check_regular, read_text
from bnncert.report.vnncomp_files import Line, ResultsTable

# -- the list -----------------------------------------------------------------------------


@dataclass(frozen=True)
class CategoryInstance:
    """One row of an instances.csv."""

    category: str
    #: The file names in the row.
    onnx: str
    vnnlib: str
    timeout: float
    #: The existing files, possibly gzipped; a model has a name if the row lists several.
    models: tuple[tuple[str, Path], ...]
    query: Path
    #: Name of the result file; no two instances of a category share one.
    name: str

    @property
    def model(self) -> Path:
        """The first model, which is the only one of most instances."""
        return self.models[0][1]

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the instance reads."""
        return (*(path for _, path in self.models), self.query)


def read_instances(path: Path, timeout: float | None = None) -> tuple[CategoryInstance, ...]:
    """Read an instances.csv: rows `onnx,vnnlib,timeout`, files relative to its folder.

    `timeout` replaces the time limits of the file.
    """
    Deadline(timeout)
    text = read_text(path, DEFAULT_LIMITS.table, "table")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise FormatError(f"{path}:{reader.line_num}: not CSV ({error})") from error
    category = path.resolve().parent.name
    names: dict[str, int] = {}
    found = []
    for line, row in rows:
        if not any(row):
            continue
        if len(row) != 3:
            raise FormatError(
                f"{path}:{line}: found {len(row)} field(s), expected onnx,vnnlib,timeout"
            )
        onnx, vnnlib, limit = row
        found.append(
            CategoryInstance(
                category=category,
                onnx=onnx,
                vnnlib=vnnlib,
                timeout=_limit(limit, f"{path}:{line}") if timeout is None else timeout,
                models=_models(path.parent, onnx, f"{path}:{line}"),
                query=_existing(path.parent, vnnlib, f"{path}:{line}"),
                name=_result_name(onnx, vnnlib, names),
            )
        )
    if not found:
        raise FormatError(f"{path}: holds no instance")
    return tuple(found)


def _limit(text: str, where: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise FormatError(f"{where}: time limit is {text!r}, expected a number of seconds > 0")
    return limit


def _models(folder: Path, text: str, where: str) -> tuple[tuple[str, Path], ...]:
    """Find the models of a row, which names one file or lists several with their networks."""
    try:
        named = listed_networks(text)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    return tuple((name, _existing(folder, file, where)) for name, file in named)


def _existing(folder: Path, text: str, where: str) -> Path:
    try:
        found = plain_or_packed(folder / text) if text else folder
        there = found.is_file()
    except (OSError, ValueError):
        # The text cannot be the name of a file.
        there = False
    if not there:
        raise FormatError(f"{where}: no such file: {text!r}, nor with .gz")
    return found


def _result_name(onnx: str, vnnlib: str, taken: dict[str, int]) -> str:
    """Return MODEL_QUERY.txt, with a number if the name is already taken."""
    names = "_".join(name for name, _ in listed_networks(onnx))
    parts = [Path(text.removesuffix(".gz")).stem for text in (names or onnx, vnnlib)]
    plain = "_".join(parts)
    name, number = plain, 1
    # Compared without case, for file systems that do the same.
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken[name.lower()] = number
    return name + ".txt"


# -- the answers --------------------------------------------------------------------------

#: Called with (finished, total, the instance just finished or None).
CategoryProgress: TypeAlias = Callable[[int, int, Line | None], None]


@dataclass(frozen=True)
class CategorySettings:
    """Settings of all instances; `certificates` is a folder, `memory` in gigabytes."""

    method: str = "auto"
    memory: float = 4.0
    certificates: Path | None = None

    def __post_init__(self) -> None:
        # Checked here, so that the processes of the instances do not fail one by one.
        REGISTRY.make(self.method)
        Options(memory=self.memory).check()


def run_category(
    instances: Sequence[CategoryInstance],
    out: Path,
    settings: CategorySettings | None = None,
    *,
    again: bool = False,
    progress: CategoryProgress | None = None,
) -> list[Line]:
    """Answer the instances that have no answer in `out` yet, write each answer, and return all.

    The folder `out` has one result file per instance and `results.csv`; it is created if necessary.
    With `again`, all instances are answered again.
    """
    settings = settings or CategorySettings()
    report = progress or (lambda done, total, line: None)
    for folder in (out, settings.certificates):
        if folder is not None:
            make_folder(folder)
    table = ResultsTable(out / "results.csv")
    questions = _questions(instances, settings)
    done = {} if again else _answered(questions, out, settings)
    report(len(done), len(instances), None)
    for instance, question in zip(instances, questions, strict=True):
        if instance.name in done:
            continue
        # Dropped first, so that a new file never exists together with an old row.
        table.drop(instance.name)
        line = _run_and_write(instance, question, out, settings)
        table.put(line)
        done[instance.name] = line
        report(len(done), len(instances), line)
    return [done[i.name] for i in instances]


def finished_lines(
    instances: Sequence[CategoryInstance], out: Path, settings: CategorySettings | None = None
) -> list[Line]:
    """Return the answers to these instances in a folder."""
    settings = settings or CategorySettings()
    return list(_answered(_questions(instances, settings), out, settings).values())


def _answered(questions: Sequence[Line], out: Path, settings: CategorySettings) -> dict[str, Line]:
    """Return the complete rows in a folder by the names of their result files."""
    known = {line.file: line for line in ResultsTable(out / "results.csv").lines()}
    return {
        question.file: known[question.file]
        for question in questions
        if question.file in known and _is_answer(known[question.file], question, out, settings)
    }


def _questions(instances: Sequence[CategoryInstance], settings: CategorySettings) -> list[Line]:
    """Return the rows without answers."""
    hashes: dict[Path, str] = {}
    for path in [path for i in instances for path in i.files]:
        if path not in hashes:
            check_regular(path)
            try:
                hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    return [
        Line(
            *(i.category, i.onnx, i.vnnlib, i.timeout, settings.method, i.name),
            *(_joined([hashes[path] for _, path in i.models]), hashes[i.query]),
        )
        for i in instances
    ]


def _joined(hashes: Sequence[str]) -> str:
    """Return the hash of one model, or one for all models of an instance in order."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _is_answer(line: Line, question: Line, out: Path, settings: CategorySettings) -> bool:
    """Whether a row answers exactly this question, and its files exist."""
    if line.question != question.question or not (out / line.file).is_file():
        return False
    if settings.certificates is None:
        return True
    if line.certificate is None:
        return line.word not in ("sat", "unsat")
    path = certificate_path(settings.certificates, line.file)
    return line.certificate == 0 or (path.is_file() and path.stat().st_size == line.certificate)


def certificate_path(folder: Path, name: str) -> Path:
    """Return the path of the certificate that belongs to a result file."""
    return folder / (name.removesuffix(".txt") + ".bnncert")


def _run_and_write(
    instance: CategoryInstance, question: Line, out: Path, settings: CategorySettings
) -> Line:
    path = None
    if settings.certificates is not None:
        path = certificate_path(settings.certificates, instance.name)
        _remove(path)
    _remove(out / instance.name)
    answer = run_instance(
        instance.models,
        instance.query,
        instance.timeout,
        method=settings.method,
        memory=settings.memory,
        certificate=path,
    )
    write_atomically(out / instance.name, answer.file_text)
    size = None
    if path is not None:
        written = answer.result is not None and answer.result.certificate is not None
        size = path.stat().st_size if written else 0
    found = None if answer.result is None else answer.result.counterexample
    return replace(
        question,
        word=answer.word,
        seconds=answer.seconds,
        stage=answer.stage,
        certificate=size,
        memory=answer.memory,
        replayed="" if found is None else "+".join(found.replayed_in),
        reason=answer.reason,
    )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
