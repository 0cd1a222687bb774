"""Optional libraries, imported when they are used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ..errors import MissingLibraryError


def need(module: str, purpose: str, install: str = '"optimisers[demo]"') -> Any:
    """Import a module for a purpose; where its library is missing, raise with the install line."""
    # Asked for first, so that an error inside a library that is there keeps its own words.
    name = module.partition(".")[0]
    if importlib.util.find_spec(name) is None:
        raise MissingLibraryError(
            f"cannot {purpose}: {name} is not installed; python -m pip install {install}"
        )
    return importlib.import_module(module)
