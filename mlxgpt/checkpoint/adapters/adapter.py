"""What an adapter is once it is read: low-rank changes by module path, whole weights by name."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import mlx.core as mx

from mlxgpt.model.lora import row_factors

EMBEDDING = "model.embed_tokens"
FineTuneType = Literal["lora", "dora", "full"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class LowRank:
    """The change of one matrix: `scale` times the product of `a` (in, r) and `b` (r, out).

    For a linear module that is added to the transpose of its weight (out, in), for the embedding
    (ids, C) to the weight itself. With `m`, the rows of the sum get these lengths (DoRA).
    """

    a: mx.array
    b: mx.array
    scale: float
    m: mx.array | None = None

    @property
    def rank(self) -> int:
        """The inner size r."""
        return self.a.shape[1]

    def added_to(self, weight: mx.array, path: str) -> mx.array:
        """Return the changed weight of the module `path`, computed in float32."""
        product = self.a.astype(mx.float32) @ self.b.astype(mx.float32)
        change = self.scale * (product if path == EMBEDDING else product.T)
        changed = weight.astype(mx.float32) + change
        if self.m is None:
            return changed
        lengths = mx.linalg.norm(changed, axis=-1)
        return changed * row_factors(self.m.astype(mx.float32), lengths)[:, None]


class Targets(Protocol):
    """Which modules the settings of an adapter speak of."""

    def names(self, path: str, n_layer: int) -> bool:
        """Return whether the adapter changes `path` in a network of `n_layer` layers."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Adapter:
    """A fine-tuning, apart from the model that it was made for."""

    fine_tune_type: FineTuneType
    modules: Mapping[str, LowRank] = field(default_factory=dict)
    """Path of a module (`model.layers.0.self_attn.q_proj`) -> its change; none for "full"."""
    weights: Mapping[str, mx.array] = field(default_factory=dict)
    """Full name of a weight -> what takes its place, before `modules` are added."""
    targets: Targets | None = None
    """What must be in the adapter, no more and no less; None: what is there."""
    dropout: float = 0.0
    """Share of a module's input that training hid from its low-rank part."""
    head_follows_embedding: bool = True
    """Whether a change of the embedding changes the head of a tied model too: mlx-lm says yes,
    PEFT no."""
    base: str | None = None
    """The model that it was made for, as its maker called it."""
    base_fingerprint: str | None = None
    """The weights that it was made for, as `base_fingerprint` names them."""
    chat_template: str | None = None
    """The template that it was trained with, if it is another than its base's."""
    source: str = "the adapter"
    """Where it comes from, for messages."""

    @property
    def rank(self) -> int:
        """The rank that most modules have; 0 without any."""
        return most_common([change.rank for change in self.modules.values()], 0)


def most_common(values: list[T], without: T) -> T:
    """Return the value that a list has most often, the first of several; `without` for none."""
    return Counter(values).most_common(1)[0][0] if values else without
