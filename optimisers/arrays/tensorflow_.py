"""TensorFlow: variables are assigned to, tensors replaced; IndexedSlices are gradients only."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .containers import Kind, Level, NameTuple, as_sequence, keyed
from .numbers import is_complex

tf: Any = import_module("tensorflow")  # by name: type checkers do without it


class TensorFlowAdapter:
    """TensorFlow's answers."""

    name = "tensorflow"
    host = True
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """Tensors, variables, and the slices that an embedding's gradient consists of."""
        return issubclass(cls, tf.Tensor | tf.Variable | tf.IndexedSlices)

    def is_parameter(self, x: Any) -> bool:
        """Dense arrays are trained; a variable unless it was made with `trainable=False`."""
        return not isinstance(x, tf.IndexedSlices) and bool(getattr(x, "trainable", True))

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in NumPy's words."""
        dtype: np.dtype[Any] = np.dtype(x.dtype.as_numpy_dtype)
        return dtype

    def identity(self, x: Any) -> Any:
        """Only one object is one array."""
        return id(x)

    def check(self, x: Any, code: str) -> None:
        """Whatever device TensorFlow uses, values are brought to the host and back."""

    def view(self, x: Any) -> Any:
        """Return a copy: a variable's buffer may be written or exchanged at any time."""
        if not tf.executing_eagerly():
            raise ArgumentError(
                "cannot read tensors inside tf.function, where they have no numbers; call update "
                "outside, with the gradients that it returns"
            )
        return np.asarray(x.numpy())

    def gradient(self, g: Any) -> Any:
        """Return the dense array; slices of one row are added."""
        return self.view(tf.convert_to_tensor(g))

    def held(self, x: Any) -> Any:
        """TensorFlow's arrays know no gradient: the tape does."""
        return None

    def may_write(self, x: Any) -> bool:
        """Variables can be assigned to; tensors never change."""
        return isinstance(x, tf.Variable)

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Assign, so that tapes and checkpoints know."""
        x.assign(value)
        return x

    def like(self, x: Any, value: Any) -> Any:
        """Return a variable for a variable, a tensor for a tensor, where `x` is."""
        value = np.asarray(value, dtype=self.dtype(x))
        with tf.device(x.device):
            if isinstance(x, tf.Variable):
                return tf.Variable(value, trainable=x.trainable, name=x.name.partition(":")[0])
            return tf.constant(value)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a tensor."""
        return tf.constant(value)

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate; tapes follow."""
        return tf.concat([tf.cast(tf.reshape(part, [-1]), dtype) for part in parts], 0)

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast; tapes follow."""
        part = tf.reshape(flat[where], shape)
        real = part.dtype.is_complex and not is_complex(dtype)
        return tf.cast(tf.math.real(part) if real else part, dtype)


ADAPTER = TensorFlowAdapter()


def _write(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    for name, child in zip(names, children, strict=True):
        if x[name] is not child:  # a checkpoint refuses a container that was written
            x[name] = child
    return x


def _open_items(x: Any) -> Level:
    return Level(list(x.values()), tuple(x))


def _build_dict(x: Any, names: NameTuple, children: list[Any]) -> dict[Any, Any]:
    return {**x, **dict(zip(names, children, strict=True))}


LIST = Kind(as_sequence, keyed, lambda x, names, children: list(children), _write)
DICT = Kind(_open_items, keyed, _build_dict, _write)
TUPLE = Kind(as_sequence, keyed, lambda x, names, children: tuple(children))
WRAPPERS = {"ListWrapper": LIST, "_DictWrapper": DICT, "_TupleWrapper": TUPLE}


def container(cls: type) -> Kind | None:
    """Return how the lists, dicts and tuples are taken apart that a tf.Module makes of its own."""
    return WRAPPERS.get(cls.__name__)
