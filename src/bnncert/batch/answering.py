"""One instance answered, in whatever process: a row, and its certificate as bytes.

Bytes, because the folder of the certificates may be on another machine than the worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from bnncert.batch import campaign
from bnncert.batch.planning import Job
from bnncert.batch.store import Row
from bnncert.errors import BnncertError
from bnncert.network import Network
from bnncert.version import __version__


@dataclass(frozen=True, eq=False)
class Answer:
    """A row, or why there is none."""

    job: Job
    row: Row | None
    certificate: bytes | None = None
    failure: str = ""


def answer_job(network: Network, job: Job, threads: int) -> Answer:
    """Answer one instance; what goes wrong is an answer, too, and stops no other instance."""
    try:
        if not job.certificate:
            return Answer(job, campaign.answer(network, job.instance, job.settings, threads))
        with TemporaryDirectory(prefix="bnncert-") as folder:
            settings = replace(job.settings, certificates=folder)
            row = campaign.answer(network, job.instance, settings, threads)
            content = None if row.certificate is None else Path(row.certificate).read_bytes()
            return Answer(job, replace(row, certificate=None), content)
    except BnncertError as error:
        return Answer(job, None, failure=str(error))
    except MemoryError:
        return Answer(job, None, failure="out of memory")
    except Exception as error:
        return Answer(job, None, failure=f"{type(error).__name__}: {error}")


def overdue(job: Job, seconds: float) -> Answer:
    """Return the answer of a worker that had to be stopped after its time limit: a time-out."""
    row = Row(
        key=job.instance.key,
        predicted=job.instance.predicted,
        labels=job.instance.labels,
        status="timeout",
        lower=None,
        upper=None,
        seconds=seconds,
        stage="",
        per_target=json.dumps([]),
        counterexample=None,
        counterexample_json=None,
        version=__version__,
        finished_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    return Answer(job, row)
