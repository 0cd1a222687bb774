"""What the user calls."""

from .adjust import adjust, adjust_
from .freeze import freeze, freeze_, thaw, thaw_
from .partition import combine, partition
from .setup import setup
from .update import update, update_

__all__ = [
    "adjust",
    "adjust_",
    "combine",
    "freeze",
    "freeze_",
    "partition",
    "setup",
    "thaw",
    "thaw_",
    "update",
    "update_",
]
