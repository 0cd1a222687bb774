"""What the user calls."""

from .adjust import adjust, adjust_
from .destructure import Restructure, destructure
from .freeze import freeze, freeze_, thaw, thaw_
from .partition import combine, partition
from .paths import get_path, has_path, set_path
from .read import steps, total_gradients, trainables
from .saving import load, load_state_dict, save, state_dict
from .setup import setup
from .summary import summary
from .update import update, update_

__all__ = [
    "Restructure",
    "adjust",
    "adjust_",
    "combine",
    "destructure",
    "freeze",
    "freeze_",
    "get_path",
    "has_path",
    "load",
    "load_state_dict",
    "partition",
    "save",
    "set_path",
    "setup",
    "state_dict",
    "steps",
    "summary",
    "thaw",
    "thaw_",
    "total_gradients",
    "trainables",
    "update",
    "update_",
]
