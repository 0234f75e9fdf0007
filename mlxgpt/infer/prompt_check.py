"""The ids of a prompt, and how many ids a tokenizer has -> refused where they make no sense."""

import operator
from collections.abc import Sequence

from mlxgpt.config import require
from mlxgpt.errors import ConfigError


def written_ids(vocab: int, num_ids: int | None) -> int:
    """Return how many ids a model of `vocab` ids may write: `num_ids`, or all. Raises `ConfigError`
    for more than there are."""
    require(
        num_ids is None or 1 <= num_ids <= vocab,
        f"'num_ids' must be between 1 and the model's {vocab}; got {num_ids}",
    )
    return vocab if num_ids is None else num_ids


def checked_prompt(prompt_ids: Sequence[int], num_ids: int) -> list[int]:
    """Return the ids. Raises `ConfigError` if there are none, or one the model does not have."""
    try:
        prompt = [operator.index(i) for i in prompt_ids]
    except TypeError:
        raise ConfigError(
            "a prompt is a sequence of token ids, whole numbers; "
            "make them of a text with the model's tokenizer"
        ) from None
    require(len(prompt) > 0, "the prompt is empty; give at least one token")
    for place, token in enumerate(prompt):
        if not 0 <= token < num_ids:
            require(
                False, f"prompt token {place} is id {token}; the model has ids 0 to {num_ids - 1}"
            )
    return prompt
