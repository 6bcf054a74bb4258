"""List the tests that a pytest run skipped, from its JUnit record (``junit_family=xunit1``).

``python .ci/skipped.py RECORD.xml`` prints one node id per line, as ``pytest @FILE`` reads them;
with ``--reasons`` each line ends with the reason.
"""

from __future__ import annotations

import argparse
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path


def skipped(record: Path) -> Iterator[tuple[str, str]]:
    """Yield (node id, reason) for each skipped test; a skipped module is its file."""
    for case in ElementTree.parse(record).iter("testcase"):
        mark = case.find("skipped")
        if mark is None or mark.get("type") == "pytest.xfail":
            continue
        reason = (mark.get("message") or "").removeprefix("Skipped: ")
        module, name = case.get("classname") or "", case.get("name") or ""
        if not module:
            yield name.replace(".", "/") + ".py", reason
            continue
        path = Path(case.get("file") or module.replace(".", "/") + ".py")
        # What the dotted name has beyond the file is a class.
        classes = module.removeprefix(".".join(path.with_suffix("").parts)).strip(".").split(".")
        yield "::".join([path.as_posix(), *filter(None, classes), name]), reason


def main() -> None:
    """Print the list."""
    parser = argparse.ArgumentParser(description="List the tests that a run skipped.")
    parser.add_argument("record", type=Path)
    parser.add_argument("--reasons", action="store_true")
    arguments = parser.parse_args()
    for test, reason in dict(skipped(arguments.record)).items():
        print(f"{test}: {reason}" if arguments.reasons else test)


if __name__ == "__main__":
    main()
