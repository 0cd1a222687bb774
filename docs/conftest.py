"""Every Python block of the pages runs, and what it says comes out is compared."""

from __future__ import annotations

import jax
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# JAX shortens tracebacks to the user's frames, and Sybil 10 looks for a frame that is then gone: a
# failing example would end the run with an internal error that hides what failed.
jax.config.update("jax_traceback_filtering", "off")

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["**/*.md", "*.md"]
).pytest()
