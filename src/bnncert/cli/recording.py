"""Answers of `explain`, `faults` and `count` in a results file (`--results`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bnncert.arrays import numbers_hash
from bnncert.cli.command_question import CommandQuestion
from bnncert.problem import rivals_text

if TYPE_CHECKING:
    from bnncert.results.rows import Kind

#: Fields of an answer that hold whole points; `--json` and certificates have them.
_POINTS = frozenset({"witness", "witnesses", "counterexample", "steps", "region"})


@dataclass(frozen=True, eq=False)
class Recording:
    """The results file of one command; without a `path` nothing is recorded.

    A file that exists is opened at once, so that a file of another kind is refused before the work.
    """

    path: Path | None
    kind: Kind
    question: CommandQuestion
    #: The region in words, and what distinguishes the question from others about it.
    region: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise if the file exists and is not a results file."""
        from bnncert.results.store import ResultsFile

        if self.path is not None and self.path.exists():
            ResultsFile(self.path).close()

    def add(self, tree: Mapping[str, Any]) -> str:
        """Write the answer with its network and its input; return a sentence about it, or nothing.

        `tree` is the answer as data (:meth:`bnncert.engine.answer.Answer.to_dict`).
        """
        from bnncert.results.rows import InputRecord, NetworkRecord, made_answer
        from bnncert.results.store import ResultsFile

        if self.path is None:
            return ""
        question, point = self.question, self.question.region.middle
        network = question.network
        asked = {
            **self.settings,
            "rivals": rivals_text(question.rivals),
            "sign_zero": network.sign_zero,
            "region": _digest(question.region.to_dict()),
        }
        shape = question.image_shape or network.input_shape
        with ResultsFile(self.path) as results:
            certificate = tree.get("certificate")
            answer = made_answer(
                asked,
                _without_points(tree),
                kind=self.kind,
                model_hash=network.content_hash,
                input_name=question.where,
                input_hash=numbers_hash(point),
                label=question.label,
                labels=question.labels,
                region=self.region,
                status=tree["status"],
                summary=tree["summary"],
                seconds=float(tree["seconds"]),
                certificate=None if certificate is None else results.relative(certificate),
            )
            results.add_networks([NetworkRecord.of(network, Path(network.source).name)])
            results.add_inputs([InputRecord(answer.input_hash, question.label, shape, point)])
            results.replace_other(answer)
            count = len(results.other_answers())
        plural = "" if count == 1 else "s"
        return f"results: {self.path} ({count} answer{plural} of explain, faults and count)"


def _without_points(tree: Any) -> Any:
    """Return an answer without the fields that hold whole points, which would fill the file."""
    if isinstance(tree, Mapping):
        return {k: _without_points(v) for k, v in tree.items() if k not in _POINTS}
    return [_without_points(part) for part in tree] if isinstance(tree, list | tuple) else tree


def _digest(region: Mapping[str, Any]) -> str:
    """Return the hash of a region, because two regions may have the same words."""
    return hashlib.sha256(json.dumps(region, sort_keys=True).encode()).hexdigest()
