"""The edge to the array libraries: one adapter each, and the dtype policy."""

from .adapter import Adapter, adapter_of, is_array_type
from .numbers import describe

__all__ = ["Adapter", "adapter_of", "describe", "is_array_type"]
