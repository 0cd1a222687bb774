"""HIPS Autograd: NumPy arrays, changed in place."""

from __future__ import annotations

from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np

from ..library import Case
from ..problem import Numbers, loss


def make(p: Numbers) -> Any:
    a = {name: np.array(x) for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": anp.tanh, "count": np.arange(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def net_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    wide = lambda h: h.astype(np.float32)  # noqa: E731
    return loss(enc["act"], anp.mean, wide, enc["w"], enc["b"], dec["w"], dec["narrow"], x, y)


def grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (autograd.grad(f)(model, x, y),)


CASES = {"grad": Case(make, grad, net_loss)}
