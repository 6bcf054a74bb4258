"""A requested certificate, which is written after the verdict is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bnncert.deadline import OutOfTimeError
from bnncert.engine.methods import Context
from bnncert.engine.verdict import Result
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem
from bnncert.problem.float32 import Arithmetic
from bnncert.regions import ImagePath


@dataclass(frozen=True, eq=False)
class CertificateRequest:
    """A requested certificate: its file and its subject."""

    path: Path
    network: Network
    arithmetic: Arithmetic = "real"
    sign_zero: SignZero | None = None

    def write(self, problem: Problem, result: Result, context: Context) -> Result:
        """Write the certificate of a verdict; if that fails, name the trusted solvers."""
        # Imported on use, because most verifications do not write a certificate.
        from bnncert.proofs.claims import write_path
        from bnncert.proofs.writing import CertificateError, write_counterexample, write_proof

        try:
            if isinstance(problem.inputs, ImagePath):
                if result.status != "robust" and result.counterexample is None:
                    return result
                write_path(self.path, problem, problem.inputs, self.network, result.counterexample)
            elif result.status == "robust":
                write_proof(
                    self.path,
                    problem,
                    self.network,
                    arithmetic=self.arithmetic,
                    sign_zero=self.sign_zero,
                    record=context.record,
                    deadline=context.deadline,
                    progress=context.progress,
                )
            elif result.counterexample is not None:
                write_counterexample(
                    self.path,
                    problem,
                    self.network,
                    result.counterexample,
                    arithmetic=self.arithmetic,
                    sign_zero=self.sign_zero,
                )
            else:
                return result
        except (CertificateError, OutOfTimeError) as error:
            trusted = None
            if result.status == "robust":
                solvers = dict.fromkeys(t.trusted for t in result.targets if t.trusted is not None)
                trusted = ", ".join(solvers) or "bnncert"
            return replace(result, notes=(*result.notes, str(error)), trusted=trusted)
        return replace(result, certificate=str(self.path))
