"""Token ids -> what is added to their logits, in a form that cannot change. No MLX."""

from collections.abc import Iterator, Mapping
from typing import final


@final
class LogitBias(Mapping[int, float]):
    """A mapping that is hashable, equal to any mapping of the same content, in order of ids."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[int, float] | None = None) -> None:
        self._items = dict(sorted((items or {}).items()))

    def __getitem__(self, token_id: int) -> float:
        return self._items[token_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)
