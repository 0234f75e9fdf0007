"""A model and its added tokens -> the content of a tokenizer.json for the `tokenizers` library.

Only what the ids depend on is written, always in the same form and order, so that a tokenizer has
exactly one file. BPE-dropout is a choice of the moment and never written.
"""

from typing import Any

from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.byte_alphabet import to_characters
from mlxgpt.text.byte_pair_model import BytePairModel
from mlxgpt.text.char_model import CharModel, byte_token

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


def to_tokenizer_json(model: BytePairModel | CharModel, added: AddedTokens) -> dict[str, Any]:
    """Return the whole file as an object; `json.dumps` of it is the file."""
    char = isinstance(model, CharModel)
    # The library numbers the tokens outside of `vocab` onwards from its end.
    vocab = {name: i for i, name in enumerate(_vocabulary_names(model, added))}
    merges: list[list[str]] = []
    if not char:
        names = list(vocab)
        merges = [[names[left], names[right]] for left, right in model.merges]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_json(token) for token in added.tokens],
        "normalizer": None,
        "pre_tokenizer": None if char else _pre_tokenizer(model.patterns),
        "post_processor": None,
        # Not inside a Sequence for BPE: there mlx-lm would take its slow streaming detokenizer.
        "decoder": (
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
            if char
            else dict(_BYTE_LEVEL)
        ),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": char,
            "ignore_merges": False if char else model.ignore_merges,
            "vocab": vocab,
            "merges": merges,
        },
    }


def to_tokenizer_config(eos: str | None) -> dict[str, Any]:
    """Return tokenizer_config.json: what `transformers` wants to know beside the tokenizer itself.

    `eos`, the literal that ends a document, also begins one and pads.
    """
    named = {} if eos is None else {"bos_token": eos, "eos_token": eos, "pad_token": eos}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "model_max_length": int(1e30),  # transformers' own sign for "not known here"
        "clean_up_tokenization_spaces": False,
    }


def identity(model: BytePairModel | CharModel, added: AddedTokens) -> dict[str, Any]:
    """Return all that the ids of a text depend on, in one canonical form, for hashing."""
    settings: dict[str, Any]
    if isinstance(model, CharModel):
        settings = {"characters": model.characters}
    else:
        settings = {
            "tokens": [None if t is None else to_characters(t) for t in model.tokens],
            "merges": model.merges,
            "patterns": model.patterns,
            "ignore_merges": model.ignore_merges,
        }
    tokens = [_added_json(token) for token in added.tokens]
    return {"identity": 1, "kind": model.kind, **settings, "added_tokens": tokens}


def _vocabulary_names(model: BytePairModel | CharModel, added: AddedTokens) -> list[str]:
    if isinstance(model, CharModel):
        return [*model.characters, *map(byte_token, range(256))]
    # Added tokens may stand between ordinary ones; they are named here to leave no hole.
    contents = {token.id: token.content for token in added.tokens}
    return [
        contents[i] if token is None else to_characters(token)
        for i, token in enumerate(model.tokens)
    ]


def _pre_tokenizer(patterns: tuple[str, ...]) -> dict[str, Any]:
    splits = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, dict(_BYTE_LEVEL)]}


def _added_json(token: AddedToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }
