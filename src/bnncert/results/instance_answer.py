"""The answer to one instance: a row, and the certificate as bytes.

The certificate is returned as bytes because its folder may be on another machine than the worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bnncert.engine.verdict import Result
from bnncert.errors import failure_text
from bnncert.model.formats.atomic import folder_for
from bnncert.model.network import Network
from bnncert.questions.verify import bound, verify
from bnncert.regions import Box, ImagePath, ImageUnion
from bnncert.results.instance import Instance
from bnncert.results.rows import Row


@dataclass(frozen=True, eq=False)
class Answer:
    """A row, or the reason why there is none."""

    instance: Instance
    row: Row | None
    certificate: bytes | None = None
    failure: str = ""


def attempt(network: Network, instance: Instance, threads: int) -> Answer:
    """Answer one instance; an error becomes an answer without a row."""
    try:
        if instance.certificate is None:
            return Answer(instance, answer(network, instance, threads))
        with folder_for(instance.certificate) as folder:
            row = answer(network, instance, threads, folder / "certificate.bnncert")
            content = None if row.certificate is None else Path(row.certificate).read_bytes()
            return Answer(instance, replace(row, certificate=None), content)
    except Exception as error:
        return Answer(instance, None, failure=failure_text(error))


def answer(
    network: Network, instance: Instance, threads: int = 0, certificate: Path | None = None
) -> Row:
    """Answer one instance, and write its certificate to a file if one is given."""
    settings = instance.settings
    region, label, options = instance.ball, instance.label, settings.options(threads)
    bounding = settings.question == "bound"
    if settings.targets != "all" or bounding:
        # Verification checks only the chosen adversarial classes, but the centre may have any
        # class.  A bound does not check the centre, and a tie there does not exclude a bound.
        ties = "robust" if bounding else settings.ties
        # Methods other than auto have no paths of images, of which only the image is asked about.
        is_shape = isinstance(region, ImagePath | ImageUnion)
        place = Box(region.center, region.center) if is_shape else region
        result = verify(
            network, place, label, ties=ties, method="interval", options=options, strict=False
        )
        if result.is_misclassified:
            return Row.of(instance.key, instance.predicted, result, instance.labels)
    targets, method, timeout = settings.targets, settings.method, settings.timeout
    if bounding:
        result = bound(
            network, region, label, targets=targets, method=method, timeout=timeout, options=options
        )
    else:
        result = verify(
            network,
            region,
            label,
            targets=targets,
            ties=settings.ties,
            method=method,
            timeout=timeout,
            options=options,
            certificate=certificate,
        )
    return Row.of(instance.key, instance.predicted, result, instance.labels)


def overdue(instance: Instance, seconds: float) -> Answer:
    """Return the answer of a worker that was ended after its time limit: a time-out."""
    result = Result("timeout", (), seconds, instance.settings.method)
    return Answer(instance, Row.of(instance.key, instance.predicted, result, instance.labels))
