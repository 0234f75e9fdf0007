"""The rows of a step -> the model's logits where they are wanted, keys and values in the pool."""

from collections.abc import Sequence

import mlx.core as mx

from mlxgpt.infer.engine.scheduler import Row
from mlxgpt.infer.network.network import network_for
from mlxgpt.infer.paged import Blocks, Copy, Pool, StepRow, step_attention
from mlxgpt.model import GPT


class ModelRunner:
    """A model, and the pool that holds what it has computed."""

    def __init__(self, model: GPT, pool: Pool, blocks: Blocks) -> None:
        """Raises `ConfigError` for a model that cannot be batched."""
        self._model = model
        self._network = network_for(model)
        self._blocks = blocks
        self.pool = pool
        self.steps = 0
        self.computed_tokens = 0

    def renew(self) -> bool:
        """Take over the model's weights if they were replaced; return whether they were. What was
        computed before does not go with them."""
        if not self._network.stale():
            return False
        del self._network  # or its matrices would be in memory beside the new ones
        self._network = network_for(self._model)
        return True

    def compute(self, rows: Sequence[Row], copies: Sequence[Copy]) -> mx.array:
        """Return logits (M, V), of each row in turn that wants some: those after its last true
        token, and after each of its guesses."""
        self.pool.grow(self._blocks.segments)
        self.pool.copy(copies)
        ids: list[int] = []
        wanted: list[int] = []
        for row in rows:
            ids += row.token_ids
            if row.wants_logits:
                wanted += range(len(ids) - 1 - row.drafted, len(ids))
        attention = step_attention(
            self.pool,
            self._blocks.block_size,
            [StepRow(row.sequence.table, len(row.token_ids)) for row in rows],
        )
        logits = self._network(
            mx.array(ids, dtype=mx.int32), attention, mx.array(wanted, dtype=mx.int32)
        )
        if not wanted:
            mx.eval(self.pool.arrays)
        self.steps += 1
        self.computed_tokens += len(ids)
        return logits
