"""The seam between a network that computes a flat list of tokens and a paged cache."""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from mlxgpt.infer.paged.blocks import BlockTable


@dataclass(frozen=True)
class StepRow:
    """One text's part in a step: its last `count` placed tokens are computed now."""

    table: BlockTable
    count: int

    def __post_init__(self) -> None:
        kept = self.table.length - self.table.dropped
        assert 1 <= self.count <= kept, "a row computes tokens that are placed and not dropped"

    @property
    def position(self) -> int:
        """Position of the first token that is computed."""
        return self.table.length - self.count


class StepAttention(Protocol):
    """Attention of one step: N tokens of several texts, lying side by side, no padding.

    Made once a step from the rows; the tokens lie in the order of the rows.
    """

    @property
    def positions(self) -> mx.array:
        """Position of each token in its text, (N,) int32."""
        ...

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        """Store k and v (N, Hkv, D) and return what the queries q (N, H, D) see, (N, H, D).

        q is not scaled yet: scores are divided by sqrt(D). A token sees the tokens of its own text
        up to itself, the last `window` of them if not None.
        """
        ...


def new_slots(rows: list[StepRow], block_size: int) -> list[int]:
    """Return the slots of the tokens that a step computes, in order."""
    slots = []
    for row in rows:
        blocks, dropped = row.table.blocks, row.table.dropped
        for position in range(row.position, row.table.length):
            block, place = divmod(position - dropped, block_size)
            slots.append(blocks[block] * block_size + place)
    return slots


def new_positions(rows: list[StepRow]) -> list[int]:
    """Return the positions of the tokens that a step computes, in order."""
    return [p for row in rows for p in range(row.position, row.table.length)]
