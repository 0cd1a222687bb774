"""torch.nn.Module as a model: what is trained, what is copied, what is left alone."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from optimisers import Adam, Descent, adjust, freeze, partition, setup, update, update_
from optimisers.errors import ArgumentError, StructureError

pytestmark = pytest.mark.peers


@pytest.fixture
def net(torch: ModuleType) -> Any:
    """Return layers in a row, two of them of one weight, one with buffers, one with a list."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3),
        torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 2)}),
    )  # fmt: skip
    net[2].weight = net[0].weight
    net[0].bias.requires_grad_(False)
    return net


def loss(net: Any, x: Any) -> Any:
    return (net[3]["rnn"](net[2](net[1](net[0](x))))[0] ** 2).mean()


def test_paths_are_those_of_attributes_and_positions(net: Any) -> None:
    state = setup(Adam(), net)
    assert state[0].weight.rule == Adam()
    assert state[3].rnn.weight_ih_l0.rule == Adam()
    assert "tied to model[0].weight" in repr(state[2].weight)
    with pytest.raises(StructureError, match=r"model\[2\]\.weight"):
        update(state, net, {0: None, 1: None, 2: {"bias": None}, 3: None})
    by_path = {"0/weight": Descent(1.0), "2/weight": Descent(1.0), "3/**": None, "**": Descent(0.1)}
    assert setup(by_path, net)[2].bias.rule == Descent(0.1)


def test_update_gives_a_new_module_and_leaves_the_old_one_alone(
    torch: ModuleType, net: Any
) -> None:
    x = torch.randn(4, 3)
    state = setup(Adam(0.1), net)
    old = {name: p.detach().clone() for name, p in net.named_parameters()}
    before = loss(net.eval(), x)
    before.backward()
    _, new = update(state, net)
    assert type(new) is torch.nn.Sequential
    assert new[0] is not net[0]
    assert all(torch.equal(old[name], p) for name, p in net.named_parameters())
    assert new[2].weight is new[0].weight
    assert all(p.grad is None for name, p in new.named_parameters() if p.requires_grad)
    assert new[3]["rnn"].weight_ih_l0 is new[3]["rnn"]._flat_weights[0]
    assert net[3]["rnn"].weight_ih_l0 is net[3]["rnn"]._flat_weights[0]
    assert loss(new, x) < before
    assert torch.equal(loss(net, x), before)
    weights = list(net.parameters())
    assert update_(state, net)[1] is net
    assert all(a is b for a, b in zip(weights, net.parameters(), strict=True))
    for (name, a), b in zip(net.named_parameters(), new.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert torch.equal(a, old[name]) == (name == "0.bias"), name


def test_the_total_of_a_tied_parameter_counts_once(torch: ModuleType) -> None:
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])
    net[1].weight = net[0].weight
    w = net[0].weight.detach().clone()
    (net[0].weight.sum() + net[1].weight.sum() * 3).backward()
    update_(setup(Descent(0.5), net), net)
    assert torch.equal(net[0].weight, w - 2)


def test_a_parameter_without_a_gradient_does_not_move_and_none_at_all_is_an_error(
    torch: ModuleType,
) -> None:
    net = torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1), "b": torch.nn.Linear(1, 1)})
    state = setup(Adam(0.5), net)
    with pytest.raises(
        ArgumentError, match=r"can be left out only where .* as torch's do in \.grad"
    ):
        update_(state, net)
    net["a"](torch.ones(1, 1)).sum().backward()
    b = net["b"].weight.detach().clone()
    state, _ = update_(state, net)
    assert torch.equal(net["b"].weight, b)
    assert float(state.b.weight.state[0].item()) == 0
    w = net["a"].weight.detach().clone()
    update_(freeze(state, "a"), net)
    assert torch.equal(net["a"].weight, w)
    update_(adjust(state, eta=0.0), net)
    assert torch.equal(net["a"].weight, w)


def test_a_module_may_be_a_part_of_a_model_and_have_gradients_beside(torch: ModuleType) -> None:
    model = {"net": torch.nn.Linear(2, 1, bias=False), "scale": torch.ones(1)}
    state = setup(Descent(0.5), model)
    g = {"net": {"weight": torch.ones(1, 2)}, "scale": torch.ones(1)}
    w = model["net"].weight.detach().clone()
    _, new = update_(state, model, g)
    assert new["net"] is model["net"]
    assert torch.equal(new["net"].weight, w - 0.5)
    assert new["scale"].item() == 0.5
    trained, rest = partition(state, model)
    assert rest["net"].weight is None
    assert trained["net"].weight is new["net"].weight


def test_parts_that_are_absent_and_parameters_in_lists_are_seen(torch: ModuleType) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(2, 2, bias=False)
            self.extra = None
            self.register_module("gone", None)
            self.free = torch.nn.ParameterList(
                [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
            )
            self.plain = torch.ones(2)

    net = Net()
    state = setup(Descent(0.5), net)
    (net.free[1] * 4).sum().backward()
    update_(state, net)
    assert [p.item() for p in net.free] == [1, -1]
    assert net.plain.tolist() == [1, 1]
