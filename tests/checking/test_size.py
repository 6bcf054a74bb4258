"""The part that decides what is accepted stays small enough to be read in one go."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from bnncert import checking

#: What a proof of robustness rests on; the format and counterexamples are read elsewhere.
KERNEL = (
    "checker", "proof", "parts", "function", "geometry", "skeleton", "leaves", "flips",
    "flip_sets", "flip_loop", "flip_vectors", "levels", "patterns", "sparse", "elimination",
    "branches", "lattice",
)  # fmt: skip

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


def test_every_file_of_the_kernel_can_be_read_in_one_go() -> None:
    folder = Path(checking.__file__).parent
    sizes = {name: code_lines((folder / f"{name}.py").read_text("utf-8")) for name in KERNEL}
    assert max(sizes.values()) < 300, sizes
    assert sum(sizes.values()) < 2400, sizes
