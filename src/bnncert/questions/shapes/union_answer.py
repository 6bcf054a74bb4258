"""The answer to a question about a union of boxes, with its certificate."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from bnncert.deadline import Deadline
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import REGISTRY, Options
from bnncert.engine.verdict import Result
from bnncert.errors import InputError
from bnncert.model.formats.atomic import folder_for
from bnncert.proofs.request import CertificateRequest
from bnncert.questions.prover import Announce
from bnncert.questions.shapes.union_question import UnionQuestion
from bnncert.questions.shapes.union_run import UnionRun


def solve_union(
    question: UnionQuestion,
    timeout: float | None = None,
    certificate: str | os.PathLike[str] | None = None,
    announce: Announce | None = None,
    *,
    strict: bool = False,
) -> Result:
    """Answer a question about a union, and write its certificate if one is asked for.

    Raises Interrupted on Ctrl-C, with what is known by then.
    """
    REGISTRY.make(question.method)
    (question.options or Options()).check()
    tell = announce or (lambda result: None)
    deadline = Deadline(timeout)
    if certificate is None:
        result = _answered(UnionRun(question, deadline), strict)
        tell(result)
        return result
    if question.arithmetic == "float32":
        raise InputError("a certificate of a union of boxes is about real arithmetic, not float32")
    # This refuses to replace the network's file before the work begins.
    CertificateRequest(Path(certificate), question.network, question.arithmetic, question.sign_zero)
    with folder_for(certificate) as folder:
        run = UnionRun(question, deadline, folder)
        result = _answered(run, strict)
        tell(result)
        return _certified(run, result, Path(certificate))


def _answered(run: UnionRun, strict: bool) -> Result:
    try:
        run.run()
        if strict:
            run.prefer_strict()
    except KeyboardInterrupt as stop:
        raise Interrupted(run.result()) from stop
    return run.result()


def _certified(run: UnionRun, result: Result, path: Path) -> Result:
    """Write the certificate of a verdict, or say why there is none."""
    # Imported on use, because most verifications do not write a certificate.
    from bnncert.proofs.claims import write_union, write_union_counterexample
    from bnncert.proofs.writing import CertificateError

    question, union = run.question, run.question.union
    try:
        if not union.has_certificate:
            raise CertificateError("no certificate: brightness in steps of a grid has none")
        if result.counterexample is not None:
            assert run.found_in is not None and run.folder is not None
            problem = question.problem(union.real_box(run.found_in))
            write_union_counterexample(
                *(path, problem, union, question.network, run.found_in, result.counterexample),
                *(run.folder, question.sign_zero),
            )
        elif result.status == "robust":
            missing = run.uncertified()
            if missing:
                text = f"{len(missing)} of {union.count} {union.unit}, first {run.text(missing[0])}"
                raise CertificateError(f"no certificate for {text}")
            problem = question.problem(union.real_box(0))
            write_union(path, problem, union, question.network, run.certificates)
        else:
            return result
    except CertificateError as error:
        trusted = ", ".join(run.trusted) or "bnncert"
        return replace(result, notes=(*result.notes, str(error)), trusted=trusted)
    return replace(result, certificate=str(path))
