"""Initial weights: (config, seed) -> arrays, each a function of the seed and its own name."""

import mlx.core as mx

from mlxgpt import seeding
from mlxgpt.model.gpt import GPT


def init_weights(model: GPT, seed: int) -> None:
    """Fill `model` in place, float32.

    * matrices: normal, standard deviation 1 / sqrt(fan-in);
    * the two matrices that write into the residual stream (`o_proj`, `down_proj`): zero, so that
      each block starts as the identity;
    * an untied head: zero, so that the first loss is ln V;
    * the embedding: normal, standard deviation min(0.02, 1 / C). Where it is the head as well, the
      logit of a token after itself is about C times that, at most 1, and the first loss stays
      within 2 % of ln V at any width;
    * gains: one; biases: zero.
    """
    width = model.config.n_embd
    weights = {}
    for name, old in model.weights().items():
        if name.endswith(".bias"):
            new = mx.zeros(old.shape)
        elif old.ndim == 1:
            new = mx.ones(old.shape)
        elif name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")):
            new = mx.zeros(old.shape)
        else:
            scale = min(0.02, 1 / width) if "embed_tokens" in name else old.shape[-1] ** -0.5
            new = mx.random.normal(old.shape, scale=scale, key=seeding.key(seed, f"init/{name}"))
        weights[name] = new
    model.set_weights(weights)
    mx.eval(model.parameters())
