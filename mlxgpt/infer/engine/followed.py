"""What the engine knows of a text beside its tokens."""

from dataclasses import dataclass

from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.engine.writing import Writing
from mlxgpt.infer.speculative import DraftLength


@dataclass(frozen=True)
class Followed:
    """A text, what of it may be shown, and how its guesses have fared."""

    text: Sequence
    writing: Writing
    draft_length: DraftLength
