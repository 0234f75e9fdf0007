"""A token file -> training batches: `batch(step)` is a function, there is no position to lose.

The ids form a ring. In each epoch it is turned by a random offset, cut into N // T windows that do
not overlap, and the windows are taken in a random order. So no id is a target twice in an epoch,
fewer than T ids are left out, and the borders lie elsewhere in the next one. The epochs follow one
another without a gap; a batch may hold the end of one and the start of the next.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.batch import Batch
from mlxgpt.data.token_file import TokenFile
from mlxgpt.errors import DataError
from mlxgpt.seeding import generator


class WindowBatches:
    """Batches (B, T) for one of `world_size` ranks.

    Row r of rank k at step s is window (s * world_size + k) * B + r of the one long sequence, so
    that the ranks together see what a single one with world_size * B rows would see.
    """

    def __init__(
        self,
        token_file: TokenFile,
        batch_size: int,
        context: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Raises `DataError` if there are fewer than `context` + 1 tokens."""
        check_shape(batch_size, context, rank, world_size)
        if token_file.num_tokens < context + 1:
            raise DataError(
                f"the training text has {token_file.num_tokens} tokens, but one window of context "
                f"{context} needs {context + 1}; give more text or a smaller context (--ctx)"
            )
        self.token_file = token_file
        self.batch_size = batch_size
        self.context = context
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        # A batch touches two epochs at most, unless the corpus is smaller than the batch.
        self._epoch_layout = lru_cache(maxsize=2)(self._draw_epoch)

    @property
    def fingerprint(self) -> str:
        """Names the training text; a resumed run must find the same."""
        return self.token_file.fingerprint

    @property
    def bytes_per_token(self) -> float:
        return self.token_file.num_bytes / self.token_file.num_tokens

    @property
    def windows_per_epoch(self) -> int:
        return self.token_file.num_tokens // self.context

    @property
    def identity(self) -> dict[str, Any]:
        """What the sequence of windows depends on; a resumed run must have the same.

        The seed, the context and the tokens decide it; how many rows and ranks share a step decides
        only where a step stands in it.
        """
        return {
            "tokens": self.token_file.fingerprint,
            "num_tokens": self.token_file.num_tokens,
            "context": self.context,
            "rows_per_step": self.batch_size * self.world_size,
            "seed": self.seed,
        }

    def epoch(self, step: int) -> float:
        """Return how many passes over the text lie before `step`, all ranks together."""
        return step * self.batch_size * self.world_size / self.windows_per_epoch

    def batch(self, step: int) -> Batch:
        """Return this rank's batch of `step` (from 0): the same, whenever and wherever."""
        if step < 0:
            raise ValueError(f"a step is not negative, got {step}")
        first = (step * self.world_size + self.rank) * self.batch_size
        index = np.arange(first, first + self.batch_size, dtype=np.int64)
        epochs, places = np.divmod(index, self.windows_per_epoch)
        starts = np.empty_like(index)
        for epoch in np.unique(epochs):
            offset, order = self._epoch_layout(int(epoch))
            here = epochs == epoch
            starts[here] = offset + order[places[here]] * self.context
        at = (starts[:, None] + np.arange(self.context + 1)) % self.token_file.num_tokens
        ids = self.token_file.tokens[at].astype(np.int32)  # (B, T + 1)
        weights = np.ones((self.batch_size, self.context), dtype=np.float32)
        return Batch(ids[:, :-1], ids[:, 1:], weights)

    def _draw_epoch(self, epoch: int) -> tuple[int, np.ndarray]:
        """Return the offset of the ring and the order of the windows, int64 (windows,)."""
        offset = generator(self.seed, "window-offset", epoch).integers(self.token_file.num_tokens)
        order = generator(self.seed, "window-order", epoch).permutation(self.windows_per_epoch)
        return int(offset), order


def check_shape(batch_size: int, context: int, rank: int, world_size: int) -> None:
    """Raise `ConfigError` for batches of no rows or no targets, and for a rank that is none."""
    require(batch_size >= 1, f"'batch_size' must be at least 1, got {batch_size}")
    require(context >= 1, f"'context' must be at least 1, got {context}")
    require(
        0 <= rank < world_size,
        f"'rank' must be in 0..{world_size - 1} (world size), got {rank}",
    )
