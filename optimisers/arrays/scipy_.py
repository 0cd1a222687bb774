"""SciPy's sparse arrays: gradients only, summed to dense."""

from __future__ import annotations

from typing import Any

from .numpy_ import NumPyAdapter


class SciPyAdapter(NumPyAdapter):
    """SciPy's answers."""

    name = "scipy"

    def is_array_type(self, cls: type) -> bool:
        """Sparse arrays and matrices of any format."""
        return hasattr(cls, "toarray") and hasattr(cls, "nnz")

    def is_parameter(self, x: Any) -> bool:
        """A sparse array is no parameter."""
        return False

    def gradient(self, g: Any) -> Any:
        """Return the dense array; duplicate entries are added."""
        return g.toarray()


ADAPTER = SciPyAdapter()
