"""What the user calls."""

from .adjust import adjust, adjust_, freeze, freeze_, thaw, thaw_
from .setup import setup
from .update import update, update_

__all__ = [
    "adjust",
    "adjust_",
    "freeze",
    "freeze_",
    "setup",
    "thaw",
    "thaw_",
    "update",
    "update_",
]
