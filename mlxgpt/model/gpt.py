"""The network: token ids (B, T) -> logits (B, T, V). Knows nothing of text, files or training."""

from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mlxgpt.model.attend import Attend, CausalAttend
from mlxgpt.model.config import GPTConfig
from mlxgpt.model.dropout import Dropout
from mlxgpt.model.layers import Block
from mlxgpt.model.lora import dropping
from mlxgpt.model.recomputing import recomputed_block, run_block

PLAIN = CausalAttend()


class Decoder(nn.Module):
    """Embedding, blocks and final norm; named as in Llama checkpoints (`model.*`)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.n_embd)
        self.layers = [Block(config, i) for i in range(config.n_layer)]
        self.norm = nn.RMSNorm(config.n_embd, config.rms_norm_eps)


class GPT(nn.Module):
    """A decoder-only transformer of the Llama recipe.

    Its weights are whatever `mlx.nn` starts with until `init_weights` or a checkpoint fills them.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self._config = config
        self.model = Decoder(config)
        if not config.tie_embeddings:
            self.lm_head = nn.Linear(config.n_embd, config.vocab, bias=False)

    @property
    def config(self) -> GPTConfig:
        return self._config

    @property
    def layers(self) -> list[Block]:
        """The blocks; mlx-lm's tools look for them here."""
        return self.model.layers

    def weights(self) -> dict[str, mx.array]:
        """Return all weights by their full names, in a fixed order."""
        return dict(cast(list[tuple[str, mx.array]], tree_flatten(self.parameters())))

    def set_weights(self, weights: dict[str, mx.array]) -> None:
        """Replace the weights of these names."""
        self.update(tree_unflatten(list(weights.items())))

    def __call__(
        self, input_ids: mx.array, attend: Attend = PLAIN, dropout: Dropout | None = None
    ) -> mx.array:
        """Return logits (B, T, V) for ids (B, T).

        `model(input_ids)` alone is plain causal attention over each row. Ids must lie in [0, V):
        MLX does not check an index, so whoever builds the ids does.
        """
        return self.head(self.features(input_ids, attend, dropout), dropout)

    def features(
        self,
        input_ids: mx.array,
        attend: Attend = PLAIN,
        dropout: Dropout | None = None,
        *,
        recompute: bool = False,
    ) -> mx.array:
        """Return what the head reads, (B, T, C), after the final norm.

        `recompute`: a gradient computes each block again instead of keeping what is inside it.
        """
        last = self._config.n_layer
        with dropping(self.model.embed_tokens, dropout and dropout.of_adapters(last)):
            x = self.model.embed_tokens(input_ids)
        if dropout:
            x = dropout(x, 0)
        run = recomputed_block if recompute else run_block
        for i, block in enumerate(self.model.layers):
            x = run(block, i, x, attend, dropout)
        return self.model.norm(x)

    def head(self, features: mx.array, dropout: Dropout | None = None, piece: int = 0) -> mx.array:
        """Return logits (..., V) for features (..., C); a prefill needs only the last ones.

        There is no dropout here but that of a low-rank change of the head; `piece` numbers the
        calls of one pass.
        """
        last = self._config.n_layer
        with dropping(self.head_module, dropout and dropout.of_adapters(last + 1, piece)):
            if self._config.tie_embeddings:
                return self.model.embed_tokens.as_linear(features)
            return self.lm_head(features)

    @property
    def head_module(self) -> nn.Module:
        """What turns features into logits: the embedding again, or a matrix of its own."""
        return self.model.embed_tokens if self._config.tie_embeddings else self.lm_head
