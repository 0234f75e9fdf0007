"""The ids of a text -> the same with the ids that a model expects around them, such as BOS.

They act only where the caller asks for them. ByteLevel, which moves no ids, is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Template:
    """What stands around a single text."""

    pieces: tuple[tuple[int, ...] | None, ...]
    """Ids, or None where the text stands."""
    json: Mapping[str, Any]
    """The component in the form of the file."""

    def apply(self, ids: list[int]) -> list[int]:
        """Return the ids with those of the template around them."""
        whole: list[int] = []
        for piece in self.pieces:
            whole.extend(ids if piece is None else piece)
        return whole


@dataclass(frozen=True)
class PostProcessor:
    """All templates of a file in a row; each takes the result of the one before."""

    templates: tuple[Template, ...] = ()

    def apply(self, ids: list[int]) -> list[int]:
        """Return the ids with all that is added around them."""
        for template in self.templates:
            ids = template.apply(ids)
        return ids

    def first_id(self) -> int | None:
        """Return the id that stands before every text, or None."""
        first = next(iter(self.apply([])[:1]), None)
        return first if self.apply([-1])[:1] == [first] else None

    def to_json(self) -> dict[str, Any] | None:
        """Return it in the form of the file."""
        steps: Sequence[dict[str, Any]] = [dict(template.json) for template in self.templates]
        if len(steps) > 1:
            return {"type": "Sequence", "processors": steps}
        return steps[0] if steps else None
