"""Settings of the HTML documentation, which `make docs` builds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy.typing as npt
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

import bnncert

sys.path.insert(0, str(Path(__file__).parent))
from command_reference import PLACE, reference

project = "bnncert"
version = release = bnncert.__version__
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"bnncert {release}"
html_copy_source = False
html_show_copyright = False

# Blocks without a language are terminal sessions and formulas.
highlight_language = "none"
# Single backticks in docstrings are code, as in Markdown.
default_role = "code"
# Quotes belong to values, and two hyphens to options.
smartquotes = False
# The notebook is stored with its outputs, which the tests compare with an execution.
nb_execution_mode = "off"
# Headings that pages link to.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
# autodoc lists the members already.
numpydoc_show_class_members = False
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True

#: How autodoc writes types of numpy, and how the code does.
SHORTER = (
    (re.escape(stringify_annotation(npt.ArrayLike, "smart")), "~numpy.typing.ArrayLike"),
    (re.escape(stringify_annotation(npt.DTypeLike, "smart")), "~numpy.typing.DTypeLike"),
    (
        r"~numpy\.ndarray\[tuple\[[^\]]*\], ~numpy\.dtype\[([^\]]*)\]\]",
        r"~numpy.typing.NDArray[\1]",
    ),
    ("<factory>", "..."),
)


def shorten(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Return a signature with the names of types that a reader knows."""
    texts = [signature, returned]
    for pattern, text in SHORTER:
        texts = [old and re.sub(pattern, text, old) for old in texts]
    return texts[0], texts[1]


def insert_commands(app: Sphinx, page: str, content: list[str]) -> None:
    """Put the commands and options of the program into their page."""
    if page == "commands":
        content[0] = content[0].replace(PLACE, reference())


def setup(app: Sphinx) -> None:
    """Connect what Sphinx has no setting for."""
    app.connect("source-read", insert_commands)
    app.connect("autodoc-process-signature", shorten)
