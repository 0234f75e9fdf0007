"""Two vocabularies -> whether a token id means the same in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlxgpt.errors import ConfigError

_REMEDY = "use one that was trained with the same tokenizer"


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What ids stand for, as a tokenizer knows them; padding of a model beyond them is left out."""

    tokens: Sequence[bytes | str]
    """What each id stands for, in order of the ids."""
    special: Mapping[str, int] = field(default_factory=dict)
    """Ids with a role, by role ("eos") or by text, whichever both sides are told by."""


def check_vocabularies(target: Vocabulary, draft: Vocabulary) -> None:
    """Raise `ConfigError`, naming the first id that differs, unless all mean the same in both.

    A model whose logits are wider than its tokenizer has ids agrees: both are cut to the ids here.
    """
    for token_id, (wanted, got) in enumerate(zip(target.tokens, draft.tokens, strict=False)):
        if wanted != got:
            raise ConfigError(
                f"the draft model has another vocabulary: id {token_id} is {wanted!r} for the "
                f"model and {got!r} for the draft model; {_REMEDY}"
            )
    sizes = len(target.tokens), len(draft.tokens)
    if sizes[0] != sizes[1]:
        more, tokens = (
            ("model", target.tokens) if sizes[0] > sizes[1] else ("draft model", draft.tokens)
        )
        raise ConfigError(
            f"the draft model has another vocabulary: {sizes[1]} tokens, the model {sizes[0]}; id "
            f"{min(sizes)} is {tokens[min(sizes)]!r} for the {more} alone; {_REMEDY}"
        )
    names = {
        name
        for name in target.special.keys() | draft.special.keys()
        if target.special.get(name) != draft.special.get(name)
    }
    if names:
        # By id, so that the first in the vocabulary is named; by name where both have none.
        first = min(names, key=lambda n: (target.special.get(n, draft.special.get(n, 0)), n))
        wanted, got = target.special.get(first), draft.special.get(first)
        raise ConfigError(
            f"the draft model has another vocabulary: special token {first!r} is "
            f"{_described(wanted)} for the model and {_described(got)} for the draft model; "
            f"{_REMEDY}"
        )


def _described(token_id: int | None) -> str:
    return "missing" if token_id is None else f"id {token_id}"
