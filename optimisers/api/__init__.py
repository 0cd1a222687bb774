"""What the user calls."""

from .setup import setup
from .update import update, update_

__all__ = ["setup", "update", "update_"]
