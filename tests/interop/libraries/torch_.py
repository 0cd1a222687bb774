"""torch: torch.func, torch.autograd.grad, and whole modules after backward."""

from __future__ import annotations

from typing import Any

import torch

from ..library import NEST, Case, filled, trained_only
from ..problem import Numbers, loss


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


def backward(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    model.zero_grad()
    model(x, y).backward()
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
    return computed(torch.tanh, enc["w"], enc["b"], dec["w"], dec["narrow"], x, y)


def autograd_grad(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Ask for a list of tensors, and put the answers back into a nest."""
    enc, dec = model["enc"], model["dec"]
    asked = [enc["w"], enc["b"], dec["w"], dec["narrow"], model["spare"]["w"]]
    w, b, again, narrow, unused = torch.autograd.grad(
        nest_loss(model, x, y), asked, allow_unused=True
    )
    return (
        {
            "enc": {"w": w, "b": b, "act": None, "count": None},
            "dec": {"w": again, "narrow": narrow},
            "spare": {"w": unused},
        },
    )


def func_grad(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    grads = torch.func.grad(nest_loss)(trained_only(state, model), x, y)
    return (filled(grads, model),)


def named(p: Numbers) -> Any:
    return dict(Net(p).named_parameters())


def functional(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Call a module with other parameters; those named once are tied in it."""
    trained = {name: p for name, p in model.items() if p.requires_grad}
    module = Net({name: model[path].detach().numpy() for name, path in NAMED.items()})
    return (
        {
            **dict.fromkeys(model),
            **torch.func.grad(lambda q: torch.func.functional_call(module, q, (x, y)))(trained),
        },
    )


NAMED = {"w": "enc.w", "b": "enc.b", "narrow": "dec.narrow", "unused": "spare.w"}
CASES = {
    "module": Case(Net, backward, NEST),
    "autograd.grad": Case(nest, autograd_grad, NEST, tied="total"),
    "func.grad": Case(nest, func_grad, NEST, extras="through `partition`, without None"),
    "functional_call": Case(
        named, functional, {k: (n,) for k, n in NAMED.items()}, extras="none in it"
    ),
}
