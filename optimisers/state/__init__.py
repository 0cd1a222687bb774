"""What a run carries between steps: units of parameters, looked at as a tree."""

from .layout import Layout, Param, Unit
from .state import State

__all__ = ["Layout", "Param", "State", "Unit"]
