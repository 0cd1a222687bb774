"""Names of a package that are imported when somebody first asks for them (PEP 562).

Who steps with Adam needs no other rule, no training loop and no adapter to Optax; importing it all
would take longer than importing NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

Lazy = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazily(package: str, names: Mapping[str, Iterable[str]], rooms: Iterable[str] = ()) -> Lazy:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose names come from its files.

    Args:
        package: its `__name__`.
        names: by file or room inside it, what it takes from there.
        rooms: what is one of its names as a whole. A stub tells type checkers the same.
    """
    module = sys.modules[package]
    homes = {name: name for name in rooms}
    homes |= {name: home for home, its in names.items() for name in its}

    def found(name: str) -> Any:
        if name not in homes:
            reason = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(reason, name=name, obj=module)
        home = import_module(f"{package}.{homes[name]}")
        value = home if name == homes[name] else getattr(home, name)
        setattr(module, name, value)
        return value

    return found, lambda: sorted(homes), sorted(homes)
