"""TensorFlow: variables under a GradientTape."""

from __future__ import annotations

from typing import Any

import tensorflow

from ..library import Case
from ..problem import Numbers, loss

tf: Any = tensorflow


def nest(p: Numbers) -> Any:
    a = {name: tf.Variable(x) for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": tf.tanh, "count": tf.range(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def wide(x: Any) -> Any:
    return tf.cast(x, tf.float32)


def nest_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    # One row at a time, so that the gradient at this place comes as slices.
    rows = tf.gather(dec["w"], tf.range(3))
    return loss(enc["act"], tf.reduce_mean, wide, enc["w"], enc["b"], rows, dec["narrow"], x, y)


def tape_gradient(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    with tf.GradientTape() as tape:
        value = f(model, x, y)
    return (tape.gradient(value, model),)


CASES = {"GradientTape": Case(nest, tape_gradient, nest_loss, tied="total")}
