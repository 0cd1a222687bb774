"""tinygrad: tensors after backward."""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor

from ..library import Case
from ..problem import Numbers, loss


def nest(p: Numbers) -> Any:
    a = {name: Tensor(x).realize() for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": Tensor.tanh, "count": Tensor.arange(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def nest_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    p = enc["w"], enc["b"], dec["w"], dec["narrow"]
    return loss(enc["act"], Tensor.mean, Tensor.float, *p, Tensor(x), Tensor(y))


def backward(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    for part in ("enc", "dec", "spare"):
        for t in model[part].values():
            if isinstance(t, Tensor):
                t.grad = None
    f(model, x, y).backward()
    return ()


CASES = {"backward": Case(nest, backward, nest_loss)}
