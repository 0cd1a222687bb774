"""Every Python block of the pages runs, and what it says comes out is compared."""

from __future__ import annotations

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["**/*.md", "*.md"]
).pytest()
