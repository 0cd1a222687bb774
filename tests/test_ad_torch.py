"""AutoTorch: what only torch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimisers import ad
from optimisers.errors import ArgumentError


def test_torch_gives_none_where_nothing_depends_on_a_tensor(torch: Any) -> None:
    used, unused = torch.tensor([1.0, 2.0]), torch.ones(3)
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    model = {
        "used": used,
        "unused": unused,
        "frozen": frozen,
        "n": torch.arange(2),
        "act": torch.tanh,
    }

    def loss(m: Any) -> Any:
        return (m["used"] ** 2 * m["frozen"]).sum(), {"tripled": [3 * m["used"]], "n": m["n"]}

    (value, aux), grads = ad.value_and_gradient(loss, model, has_aux=True)
    assert {k: g for k, g in grads.items() if k != "used"} == dict.fromkeys(
        ("unused", "frozen", "n", "act")
    )
    np.testing.assert_array_equal(grads["used"], [2.0, 4.0])
    assert float(value) == 5.0
    assert not value.requires_grad
    assert not aux["tripled"][0].requires_grad
    assert aux["n"] is model["n"]
    assert not used.requires_grad
    assert used.grad is None


def test_torch_differentiates_parameters_and_under_no_grad(torch: Any) -> None:
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    with torch.no_grad():
        grads = ad.gradient(lambda m: (m[0] ** 2).sum(), [w])
    np.testing.assert_array_equal(grads[0], [2.0, 4.0])
    assert w.grad is None


def test_torch_nests(torch: Any) -> None:
    def cubes(m: Any) -> Any:
        return (m["w"] ** 3).sum()

    w = torch.tensor([1.0, 2.0])
    grads = ad.gradient(lambda m: ad.gradient(cubes, m)["w"].sum() + cubes(m), {"w": w})
    np.testing.assert_allclose(grads["w"], 6 * w + 3 * w**2)
    x = w.clone().requires_grad_()
    ad.gradient(cubes, {"w": 1 * x})["w"].sum().backward()
    np.testing.assert_allclose(x.grad, 6 * w)


def test_torch_answers_within_its_own_transformations(torch: Any) -> None:
    def cubes(m: Any) -> Any:
        return (m["w"] ** 3).sum()

    def slope(w: Any) -> Any:
        model = {"w": w, "n": 3}
        (value, aux), grads = ad.value_and_gradient(
            lambda m: (cubes(m), (m, "kept")), model, has_aux=True
        )
        assert aux[1] == "kept"
        return grads["w"] + 0 * value + 0 * aux[0]["w"]

    w = torch.tensor([1.0, 2.0])
    np.testing.assert_allclose(torch.func.grad(lambda w: slope(w).sum())(w), 6 * w)
    np.testing.assert_allclose(torch.func.vmap(slope)(torch.stack([w, w]))[1], 3 * w**2)
    with torch.inference_mode():
        np.testing.assert_allclose(slope(w), 3 * w**2)


def test_torch_refuses_a_value_cut_off_from_the_model(torch: Any) -> None:
    for cut in (lambda m: m["w"].sum().item(), lambda m: m["w"].sum().detach()):
        with pytest.raises(ArgumentError, match=r"does not depend on the model.*\.item\(\)"):
            ad.gradient(cut, {"w": torch.ones(2)})


def test_torch_complex_gradients_are_directions_of_descent(torch: Any) -> None:
    z = torch.tensor([3.0 + 4.0j])
    np.testing.assert_allclose(ad.gradient(lambda z: (z.abs() ** 2).sum(), z), 2 * z)
