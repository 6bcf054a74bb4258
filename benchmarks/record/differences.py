"""The differences between recorded answers and new ones, by field and kind of question."""

from __future__ import annotations

import difflib
import json
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

#: Lines of one difference that are printed.
MOST_LINES = 12


@dataclass
class Differences:
    """Collects differences; fields in `ignored` are not compared."""

    ignored: frozenset[str] = frozenset()
    #: Field and first word of the kind: what differs, with the numbers of the questions.
    groups: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    #: How many questions differ.
    number: int = 0

    def compare(self, entry: dict[str, Any], answers: list[dict[str, Any]]) -> None:
        """Compare the answers to one question with those in the record."""
        before = self._size()
        for words, old, new in zip(entry["commands"], entry["answers"], answers, strict=True):
            command = f"  #{entry['number']} {entry['kind']}: bnncert {shlex.join(words)}"
            for name in sorted(set(old) | set(new)):
                one, two = old.get(name), new.get(name)
                # Their texts: a NaN equals itself.
                if name not in self.ignored and json.dumps(one) != json.dumps(two):
                    group = name, (words or ["-"])[0]
                    self.groups[group].append(f"{command}\n{_text(one, two)}")
        self.number += self._size() > before

    def _size(self) -> int:
        return sum(map(len, self.groups.values()))

    def text(self, most: int) -> str:
        """Return all groups with some differences each."""
        lines = []
        for (name, command), found in sorted(self.groups.items()):
            lines.append(f"{name}, {command}: {len(found)}")
            lines += found[:most]
            if len(found) > most:
                lines.append(f"  and {len(found) - most} more (--most)")
        return "\n".join(lines) if lines else "no difference"


def _text(one: Any, two: Any) -> str:
    """Return what differs, line by line."""
    if not isinstance(one, str | dict) or not isinstance(two, str | dict):
        return f"    {json.dumps(one)} -> {json.dumps(two)}"
    texts = [t if isinstance(t, str) else json.dumps(t, indent=1) for t in (one, two)]
    found = difflib.unified_diff(*(t.splitlines() for t in texts), lineterm="", n=0)
    lines = [f"    {line}" for line in list(found)[2:] if not line.startswith("@@")]
    more = [f"    and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more)
