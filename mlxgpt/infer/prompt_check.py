"""The ids of a prompt, and how many ids a tokenizer has -> refused where they make no sense."""

from collections.abc import Sequence

from mlxgpt.config import require


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
    require(len(prompt_ids) > 0, "the prompt is empty; give at least one token")
    prompt = [int(i) for i in prompt_ids]
    for place, token in enumerate(prompt):
        if not 0 <= token < num_ids:
            require(
                False, f"prompt token {place} is id {token}; the model has ids 0 to {num_ids - 1}"
            )
    return prompt
