"""MLX: mx.grad of nests, nn.value_and_grad of modules."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from ..library import Case
from ..problem import Numbers, loss


def wide(x: Any) -> Any:
    return x.astype(mx.float32)


def nest(p: Numbers) -> Any:
    a = {name: mx.array(x) for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": mx.tanh, "count": mx.arange(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def nest_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    p = enc["w"], enc["b"], dec["w"], dec["narrow"]
    return loss(enc["act"], mx.mean, wide, *p, mx.array(x), mx.array(y))


def core_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (mx.grad(f)(model, x, y),)


class Encoder(nn.Module):
    def __init__(self, w: Any, b: Any) -> None:
        super().__init__()
        self.w, self.b, self.act, self.count = w, b, mx.tanh, mx.arange(3)
        self.still = mx.ones(2)
        self.freeze(keys=["count", "still"])


class Part(nn.Module):
    def __init__(self, **arrays: Any) -> None:
        super().__init__()
        for name, x in arrays.items():
            setattr(self, name, x)


class Net(nn.Module):
    def __init__(self, p: Numbers) -> None:
        super().__init__()
        a = {name: mx.array(x) for name, x in p.items()}
        self.enc = Encoder(a["w"], a["b"])
        self.dec = Part(w=a["w"], narrow=a["narrow"])
        self.spare = Part(w=a["unused"])

    def __call__(self, x: Any, y: Any) -> Any:
        enc, dec = self.enc, self.dec
        return loss(enc.act, mx.mean, wide, enc.w, enc.b, dec.w, dec.narrow, x, y)


def module_loss(model: Any, x: Any, y: Any) -> Any:
    return model(mx.array(x), mx.array(y))


def module_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (nn.value_and_grad(model, lambda x, y: f(model, x, y))(x, y)[1],)


CASES = {
    "core.grad": Case(nest, core_grad, nest_loss),
    "nn.value_and_grad": Case(Net, module_grad, module_loss),
}
