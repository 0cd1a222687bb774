"""Every Python block of the pages runs, and what it says comes out is compared.

Blocks that begin with `>>>` are doctests. What any other block prints stands in a block named
`output` right after it; `...` there is for what differs from run to run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import tempfile
from typing import Any

import jax
from sybil import Document, Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

# JAX shortens tracebacks to the user's frames, and Sybil 10 looks for a frame that is then gone: a
# failing example would end the run with an internal error that hides what failed.
jax.config.update("jax_traceback_filtering", "off")

LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOTHING = ""
KEPT = "_where_pages_run"


class Printing:
    """Runs plain blocks, and keeps what each printed until its `output` block asks for it."""

    def __init__(self) -> None:
        self.run = PythonEvaluator()
        self.printed: dict[Document, str] = {}

    def code(self, example: Example) -> str | None:
        """Run a block as a user's script would; what the one before it printed must be shown."""
        left = self.printed.pop(example.document, NOTHING)
        example.namespace["__name__"] = "__main__"
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            self.run(example)
        self.printed[example.document] = written.getvalue()
        return f"no output block shows what the block before printed:\n{left}" if left else None

    def output(self, example: Example) -> str | None:
        """Compare what a page shows with what the block before it printed."""
        got = self.printed.pop(example.document, NOTHING)
        if doctest.OutputChecker().check_output(example.parsed, got, LIKE):
            return None
        return f"the page shows:\n{example.parsed}\nprinted was:\n{got}"


class Blocks(PythonCodeBlockParser):
    """Python blocks, doctests or plain."""

    def __init__(self, plain: Any) -> None:
        super().__init__()
        self.codeblock_parser = CodeBlockParser("python", plain)


def into_a_folder(namespace: dict[str, Any]) -> None:
    """Let a page write files where it stands, as its reader does, and leave none here."""
    namespace[KEPT] = stack = contextlib.ExitStack()
    stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))


def out_of_it(namespace: dict[str, Any]) -> None:
    namespace[KEPT].close()


printing = Printing()
pages = Sybil(
    parsers=[Blocks(printing.code), CodeBlockParser("output", printing.output)],
    patterns=["**/*.md", "*.md"],
    setup=into_a_folder,
    teardown=out_of_it,
)
pytest_collect_file = pages.pytest()
