"""The certificate of the lower side: that of the largest count that is proved robust."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from bnncert.deadline import TIME_IS_UP
from bnncert.engine.verdict import Result


class LowerSide:
    """Keeps the certificate of the last proof in a file; counts are proved in increasing order.

    Attributes
    ----------
    count
        The count that the certificate is about, or None if there is no certificate.
    reason
        Why the last proof has no certificate.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.count: float | None = None
        self.reason = ""
        self._part: Path | None = None

    @property
    def is_late(self) -> bool:
        """Whether the last proof has no certificate because its share of the time was too short."""
        return self.count is None and self.reason.endswith(TIME_IS_UP)

    def next_file(self) -> Path | None:
        """Return a temporary file for the next certificate, until its verdict is known."""
        if self.path is None:
            return None
        # A counterexample also has a certificate, which must not replace that of a proof.
        self._part = self.path.with_name(f".bnncert-{secrets.token_hex(8)}{self.path.suffix[:16]}")
        return self._part

    def finish(self, count: float, result: Result) -> None:
        """Keep the certificate if it is that of a proof."""
        part, path = self._part, self.path
        if part is None or path is None:
            return
        self._part = None
        try:
            if result.status == "robust" and result.certificate is not None:
                os.replace(part, path)
                self.count, self.reason = count, ""
            elif result.status == "robust":
                if self.count is not None:
                    path.unlink(missing_ok=True)
                self.count, self.reason = None, result.notes[-1] if result.notes else ""
        finally:
            part.unlink(missing_ok=True)
