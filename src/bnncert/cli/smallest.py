"""The output of `bnncert radius --exact`, and the file from which a search continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bnncert.cli.command_question import CommandQuestion
from bnncert.cli.consoles import Consoles
from bnncert.cli.result_views import replay_text
from bnncert.errors import FormatError, InputError
from bnncert.model.formats.file_content import parse_json, read_bytes
from bnncert.problem import Targets
from bnncert.questions.radius.radius_answer import SmallestResult
from bnncert.questions.radius.smallest import Known
from bnncert.report.picture import CounterexampleFile
from bnncert.report.summary import probe_table, smallest_table

#: The fields of the JSON file that have to be equal for a search to continue from it.
QUESTION = ("network_hash", "sign_zero", "ties", "targets", "label", "region")


class SmallestView:
    """Shows the smallest perturbation of one question.

    `saved` is the file for the witness, `about` the description of the network in the JSON file.
    """

    def __init__(
        self, question: CommandQuestion, saved: Path | None, about: dict[str, Any]
    ) -> None:
        ball = question.region
        self._file = None
        if saved is not None:
            self._file = CounterexampleFile.around(
                *(saved, question.network, ball.middle, ball.clip_lo, ball.clip_hi),
                question.image_shape,
            )
        self._about = {
            "ties": about["ties"],
            "targets": _as_json(question.targets),
            "label": question.label,
            "region": ball.to_dict(),
        }
        self._network = {name: about[name] for name in ("network_hash", "sign_zero")}

    def __call__(self, consoles: Consoles, result: SmallestResult) -> dict[str, Any]:
        """Print both sides and the witness, save the witness, and return all for JSON."""
        console = consoles.details
        if consoles.verbose:
            console.print(probe_table(result.probes, result.counts.text))
        console.print(smallest_table(result))
        consoles.answer.print(_sentence(result), soft_wrap=True)
        if result.certificate is not None:
            sure = result.counts.text(result.certified)
            console.print(f"certificate: {result.certificate} (robust up to {sure})")
        elif result.no_certificate:
            console.print(f"the proof is not written: {result.no_certificate}", soft_wrap=True)
        if self._file is not None:
            console.print(self._file.write(result.witness), soft_wrap=True)
        return {**self._about, **result.to_dict()}

    def known(self, path: Path) -> Known:
        """Return the state of the search in a JSON file, which must have the same question."""
        tree = parse_json(read_bytes(path), str(path))
        try:
            asked = {name: tree[name] for name in QUESTION}
            certified, witness = tree["counts"]["certified"], tree["witness"]
            point = None if witness is None else np.array(witness["input"], dtype=np.float64)
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: not a file that `radius --exact --json` wrote") from error
        for name, value in {**self._network, **self._about}.items():
            if asked[name] != value:
                raise InputError(f"{path}: a search about another question ({name} differs)")
        is_count = certified is None or (type(certified) is int and certified >= 0)
        if not is_count or (point is not None and point.shape != (len(asked["region"]["center"]),)):
            raise FormatError(f"{path}: not a file that `radius --exact --json` wrote")
        return Known(certified, point)


def _as_json(targets: Targets) -> str | int | list[int]:
    return list(targets) if isinstance(targets, tuple) else targets


def _sentence(result: SmallestResult) -> str:
    """Return the answer in words."""
    found, counts = result.witness, result.counts
    if result.minimum == 0 and found is not None:
        return f"the input itself is a counterexample for {found.target}, {replay_text(found)}"
    if result.minimum is not None and found is not None:
        distance = f"{counts.radius(result.minimum):.6g}"
        what = f"smallest perturbation: {counts.text(result.minimum)}"
        if result.norm != "l0":
            what += f" ({distance} in input units)"
        return f"{what}, {found.target}, {replay_text(found)}"
    if found is not None:
        return f"the minimum is open; counterexample for {found.target}, {replay_text(found)}"
    if result.is_closed:
        reach = "the data box" if result.covers_data else "the largest radius looked at"
        return f"no perturbation within {reach} changes the class"
    return "the minimum is open; no counterexample was found"
