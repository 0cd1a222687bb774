"""The shape of a model: containers, names and paths, and the parallel walk with gradients."""

from .match import Match, match
from .nodes import flatten
from .outline import Node, Outline, Path, Program, outline, program, rebuild
from .register import register, trainable

__all__ = [
    "Match",
    "Node",
    "Outline",
    "Path",
    "Program",
    "flatten",
    "match",
    "outline",
    "program",
    "rebuild",
    "register",
    "trainable",
]
