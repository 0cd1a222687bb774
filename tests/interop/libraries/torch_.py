"""torch: torch.func, torch.autograd.grad, and whole modules after backward."""

from __future__ import annotations

from typing import Any

import torch

from ..library import Case
from ..problem import Numbers, loss, numbers


class Encoder(torch.nn.Module):
    def __init__(self, w: Any, b: Any) -> None:
        super().__init__()
        self.w, self.b, self.act = w, b, torch.tanh
        self.register_buffer("count", torch.arange(3))


class Decoder(torch.nn.Module):
    def __init__(self, w: Any, narrow: Any) -> None:
        super().__init__()
        self.w, self.narrow = w, narrow


class Spare(torch.nn.Module):
    def __init__(self, w: Any) -> None:
        super().__init__()
        self.w, self.still = w, torch.nn.Parameter(torch.ones(2), requires_grad=False)


class Net(torch.nn.Module):
    def __init__(self, p: Numbers) -> None:
        super().__init__()
        a = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in p.items()}
        self.enc = Encoder(a["w"], a["b"])
        self.dec = Decoder(a["w"], a["narrow"])
        self.spare = Spare(a["unused"])

    def forward(self, x: Any, y: Any) -> Any:
        enc, dec = self.enc, self.dec
        return computed(enc.act, enc.w, enc.b, dec.w, dec.narrow, x, y)


def computed(act: Any, w: Any, b: Any, again: Any, narrow: Any, x: Any, y: Any) -> Any:
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return loss(act, torch.mean, torch.Tensor.float, w, b, again, narrow, x, y)


def module_loss(model: Any, x: Any, y: Any) -> Any:
    return model(x, y)


def backward(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    model.zero_grad()
    f(model, x, y).backward()
    return ()


def nest(p: Numbers) -> Any:
    """Return dicts of leaf tensors, with an integer tensor and a function among them."""
    a = {name: torch.tensor(x, requires_grad=True) for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": torch.tanh, "count": torch.arange(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def nest_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    return computed(enc["act"], enc["w"], enc["b"], dec["w"], dec["narrow"], x, y)


def autograd_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Ask for a list of tensors, and put the answers back into a nest."""
    enc, dec = model["enc"], model["dec"]
    asked = [enc["w"], enc["b"], dec["w"], dec["narrow"], model["spare"]["w"]]
    w, b, again, narrow, unused = torch.autograd.grad(f(model, x, y), asked, allow_unused=True)
    return (
        {
            "enc": {"w": w, "b": b, "act": None, "count": None},
            "dec": {"w": again, "narrow": narrow},
            "spare": {"w": unused},
        },
    )


def func_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (torch.func.grad(f)(model, x, y),)


def named(p: Numbers) -> Any:
    module = Net(p)
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def functional_loss(model: Any, x: Any, y: Any) -> Any:
    """Call a module with other parameters; those named once are tied in it."""
    return torch.func.functional_call(MODULE, model, (x, y))


MODULE = Net(numbers())
NAMED = {"w": "enc.w", "b": "enc.b", "narrow": "dec.narrow", "unused": "spare.w"}
CASES = {
    "module": Case(Net, backward, module_loss),
    "autograd.grad": Case(nest, autograd_grad, nest_loss, tied="total"),
    "func.grad": Case(nest, func_grad, nest_loss),
    "functional_call": Case(
        named, func_grad, functional_loss, {k: (n,) for k, n in NAMED.items()},
        {"count": ("enc.count",)},
    ),
}  # fmt: skip
