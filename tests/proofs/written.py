"""Certificates of answers to tiny questions, written and checked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.brute_force import TinyQuestion
from tests.kernel.claims import accepted


class Written:
    """Counts the verdicts of certificates, and the answers without one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.counts: Counter[str] = Counter()

    def check(self, question: TinyQuestion, method: str, words: str) -> None:
        """Answer a question; its certificate is accepted and says what it is about."""
        self._path.unlink(missing_ok=True)
        result = question.verify(method, certificate=self._path)
        question.check(result)
        if result.certificate is None:
            # Only an answer that is not found may have none.
            self.counts["none" if result.status == question.expected() else "undecided"] += 1
            return
        report = accepted(self._path, question.network)
        assert report is not None
        assert report.verdict == result.status == question.expected()
        assert words in report.statement
        self.counts[report.verdict] += 1

    def conclude(self) -> None:
        """Both verdicts occurred, and every answer had a certificate."""
        assert self.counts["robust"] > 0
        assert self.counts["not_robust"] > 0
        assert self.counts["none"] == 0
