"""The plain training loop, and its step for loops of your own."""

from .loop import train
from .step import TrainState, make_step

__all__ = ["TrainState", "make_step", "train"]
