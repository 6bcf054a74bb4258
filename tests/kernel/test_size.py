"""The part that decides what is accepted stays small enough to be read in one go."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from bnncert import kernel

#: What a proof of robustness rests on, besides the format and the statement.
KERNEL = (
    "checker", "proof", "function", "geometry", "skeleton", "leaves", "flips",
    "flip_loop", "levels", "patterns", "sparse", "elimination", "branches", "input_cuts",
    "refutation", "refutation_loop",
)  # fmt: skip

SOURCE = Path(kernel.__file__).parent.parent

#: The readers of files that are not models.
OTHER_FILES = ("images", "inputs")

#: The files of each part that docs/certificates.md says to be trusted.
TRUSTED = {
    "model reader": [
        path
        for path in (SOURCE / "model" / "formats").rglob("*.py")
        if path.stem not in OTHER_FILES
    ],
    "network": [SOURCE / "arrays.py", *(SOURCE / "model").glob("*.py")],
    "format": [
        SOURCE / "kernel" / f"{name}.py" for name in ("container", "section_reading", "budget")
    ],
    "statement": [SOURCE / "kernel" / f"{name}.py" for name in ("statement", "space")],
    "kernel": [SOURCE / "kernel" / f"{name}.py" for name in KERNEL],
    "counterexamples": [SOURCE / "kernel" / "counterexample.py"],
    "claims": [*(SOURCE / "kernel" / "claims").rglob("*.py")],
    "rules": [*(SOURCE / "kernel" / "rules").rglob("*.py")],
}

#: A row of the table of trusted parts.
ROW = re.compile(rf"^\| ({'|'.join(TRUSTED)}) \| (\d+) \|", re.MULTILINE)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "certificates.md"

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Count the lines that are neither blank nor comment nor docstring."""
    words: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                words |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - words)


def test_code_lines_are_counted_as_they_should_be() -> None:
    assert code_lines('"""Doc."""\n\n# Why.\nx = (\n    1\n)\n\ndef f():\n    "Doc."\n') == 4


def size(path: Path) -> int:
    return code_lines(path.read_text("utf-8"))


def test_every_file_of_the_kernel_can_be_read_in_one_go() -> None:
    sizes = {path.stem: size(path) for path in TRUSTED["kernel"]}
    assert max(sizes.values()) < 300, sizes
    assert sum(sizes.values()) < 2825, sizes


def test_every_file_of_the_checker_is_in_one_part() -> None:
    listed = [
        path
        for paths in TRUSTED.values()
        for path in paths
        if path.is_relative_to(SOURCE / "kernel")
    ]
    found = {*(SOURCE / "kernel").rglob("*.py")} - {SOURCE / "kernel" / "__init__.py"}
    assert len(listed) == len(set(listed)) and set(listed) == found


def trusted() -> dict[str, int]:
    """Return the lines of each part."""
    return {part: sum(map(size, paths)) for part, paths in TRUSTED.items()}


def test_the_page_states_how_much_is_trusted() -> None:
    stated = {part: int(n) for part, n in ROW.findall(PAGE.read_text("utf-8"))}
    assert stated == trusted(), "python -m tests.kernel.test_size writes the numbers"


if __name__ == "__main__":
    text = ROW.sub(lambda row: f"| {row[1]} | {trusted()[row[1]]} |", PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")
