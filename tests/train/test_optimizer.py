from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_unflatten
from tiny_runs import flat

from mlxgpt.train import OptimizerConfig
from mlxgpt.train.optimizer import Optimizers

STEPS = 20


def weights() -> dict[str, Any]:
    """A small network's weights: embedding, wide, tall and square matrices in blocks, gains."""
    draw = np.random.default_rng(1)

    def array(*shape: int) -> mx.array:
        return mx.array(draw.normal(size=shape).astype(np.float32))

    block = {"q": {"weight": array(6, 6)}, "up": {"weight": array(9, 4)}, "gain": array(5)}
    other = {"q": {"weight": array(3, 7)}, "up": {"weight": array(4, 4)}, "gain": array(5)}
    return {
        "model": {"embed": {"weight": array(8, 3)}, "layers": [block, other]},
        "head": array(8, 3),
    }


def gradient(step: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    draw = np.random.default_rng([step, *name.encode()])
    return draw.normal(size=shape, scale=0.5).astype(np.float32)


def as_tree(tree: Any, step: int, prefix: str = "") -> Any:
    """Return gradients of step `step` in the form of `tree`."""
    if isinstance(tree, dict):
        return {k: as_tree(v, step, f"{prefix}.{k}" if prefix else k) for k, v in tree.items()}
    if isinstance(tree, list):
        return [as_tree(v, step, f"{prefix}.{i}") for i, v in enumerate(tree)]
    return mx.array(gradient(step, prefix, tree.shape))


def run(config: OptimizerConfig, factors: list[float]) -> dict[str, np.ndarray]:
    parameters = weights()
    optimizers = Optimizers(config)
    optimizers.init(parameters)
    for step, factor in enumerate(factors, start=1):
        optimizers.set_rate(factor)
        parameters, _ = optimizers.update(as_tree(parameters, step), parameters)
        mx.eval(parameters, optimizers.state)
    return flat(parameters)


class Reference:
    """AdamW (Loshchilov and Hutter, 2019, algorithm 2) with bias correction, and Muon, in NumPy."""

    def __init__(self, config: OptimizerConfig) -> None:
        self.config = config
        self.w = {name: w.astype(np.float64) for name, w in flat(weights()).items()}
        self.m = {name: np.zeros_like(w) for name, w in self.w.items()}
        self.v = {name: np.zeros_like(w) for name, w in self.w.items()}

    def step(self, step: int, factor: float) -> None:
        c = self.config
        assert c.max_lr is not None
        gradients = {n: gradient(step, n, w.shape).astype(np.float64) for n, w in self.w.items()}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, c.grad_clip / norm) if c.grad_clip else 1.0
        for name, w in self.w.items():
            g, decay = gradients[name] * scale, c.weight_decay if w.ndim == 2 else 0.0
            if c.name == "muon" and w.ndim == 2 and ".layers." in name:
                lr = c.muon_lr * factor
                self.m[name] = c.muon_momentum * self.m[name] + (1 - c.muon_momentum) * g
                nesterov = (1 - c.muon_momentum) * g + c.muon_momentum * self.m[name]
                rows, columns = w.shape
                update = orthogonal(nesterov) * max(1, rows / columns) ** 0.5
                self.w[name] = w * (1 - lr * decay) - lr * update
                continue
            lr = c.max_lr * factor
            self.m[name] = c.beta1 * self.m[name] + (1 - c.beta1) * g
            self.v[name] = c.beta2 * self.v[name] + (1 - c.beta2) * g**2
            mean = self.m[name] / (1 - c.beta1**step)
            square = self.v[name] / (1 - c.beta2**step)
            self.w[name] = w - lr * (mean / (np.sqrt(square) + c.eps) + decay * w)


def orthogonal(x: np.ndarray) -> np.ndarray:
    """Five Newton-Schulz steps (Jordan et al., 2024)."""
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if flip else x


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"grad_clip": 0.0},
        {"grad_clip": 1e3, "weight_decay": 0.0},
        {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.5},
        {"name": "muon"},
        {"name": "muon", "muon_lr": 0.1, "muon_momentum": 0.8, "weight_decay": 0.7},
    ],
    ids=str,
)
def test_twenty_steps_equal_the_papers_algorithm(settings: dict[str, Any]) -> None:
    config = OptimizerConfig(max_lr=0.02, **settings)
    factors = [min(1.0, step / 5) * (1 - step / 40) for step in range(1, STEPS + 1)]
    reference = Reference(config)
    for step, factor in enumerate(factors, start=1):
        reference.step(step, factor)
    ours = run(config, factors)
    assert ours.keys() == reference.w.keys()
    for name, w in reference.w.items():
        np.testing.assert_allclose(ours[name], w, rtol=2e-4, atol=2e-5, err_msg=name)


def test_the_first_step_of_adamw_is_bias_corrected() -> None:
    optimizers = Optimizers(OptimizerConfig(max_lr=1e-3, weight_decay=0.0, grad_clip=0.0))
    zero = {"w": mx.zeros((2, 2))}
    optimizers.init(zero)
    moved, norm = optimizers.update({"w": mx.ones((2, 2))}, zero)
    np.testing.assert_allclose(np.array(moved["w"]), -1e-3, rtol=1e-5)
    assert norm.item() == 2.0


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_decay_pulls_at_matrices_only(name: Any) -> None:
    rate = 0.1 if name == "muon" else None
    config = OptimizerConfig(name=name, max_lr=0.1, muon_lr=rate, weight_decay=0.5)
    parameters = weights()
    optimizers = Optimizers(config)
    optimizers.init(parameters)
    nothing = {n: mx.zeros(w.shape) for n, w in flat(parameters).items()}
    moved, norm = optimizers.update(tree_unflatten(list(nothing.items())), parameters)
    assert norm.item() == 0.0
    for path, w in flat(moved).items():
        before = flat(weights())[path]
        expected = before if before.ndim == 1 else before * (1 - 0.1 * 0.5)
        np.testing.assert_allclose(w, expected, rtol=1e-6, err_msg=path)


def test_muon_takes_exactly_the_matrices_of_the_blocks() -> None:
    optimizers = Optimizers(OptimizerConfig(name="muon", max_lr=0.01))
    optimizers.init(weights())
    mine = flat(optimizers.state)
    with_second_moment = {n.split(".", 2)[2].removesuffix(".v") for n in mine if n.endswith(".v")}
    with_first_moment = {n.split(".", 2)[2].removesuffix(".m") for n in mine if n.endswith(".m")}
    assert with_second_moment - with_first_moment == {
        f"model.layers.{i}.{w}.weight" for i in (0, 1) for w in ("q", "up")
    }


def test_clipping_keeps_the_direction_and_reports_the_norm_before_it() -> None:
    config = OptimizerConfig(max_lr=1.0, beta1=0.0, beta2=0.0, eps=1e6, weight_decay=0, grad_clip=1)
    optimizers = Optimizers(config)
    parameters = {"a": mx.zeros((1, 2)), "b": mx.zeros(1)}
    optimizers.init(parameters)
    gradients = {"a": mx.array([[2.0, 3.0]]), "b": mx.array([6.0])}
    moved, norm = optimizers.update(gradients, parameters)
    assert norm.item() == pytest.approx(7.0)
    # with so large an eps the step is the gradient over it
    np.testing.assert_allclose(np.array(moved["a"]) * 1e6, [[-2 / 7, -3 / 7]], rtol=1e-4)
    np.testing.assert_allclose(np.array(moved["b"]) * 1e6, [-6 / 7], rtol=1e-4)


def test_twenty_steps_equal_pytorch() -> None:
    torch = pytest.importorskip("torch")
    config = OptimizerConfig(max_lr=0.02, grad_clip=0.0)
    start = flat(weights())
    theirs = {n: torch.nn.Parameter(torch.tensor(w)) for n, w in start.items()}
    groups = [
        {"params": [p for p in theirs.values() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in theirs.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.99), eps=1e-8)
    for step in range(1, STEPS + 1):
        for name, p in theirs.items():
            p.grad = torch.tensor(gradient(step, name, tuple(p.shape)))
        adamw.step()
    ours = run(config, [1.0] * STEPS)
    for name, p in theirs.items():
        np.testing.assert_allclose(ours[name], p.detach().numpy(), atol=1e-5, err_msg=name)
