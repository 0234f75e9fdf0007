"""A model, its added tokens and its pipeline -> the content of a tokenizer.json.

Only what the ids depend on is written, always in the same form and order, so that a tokenizer has
exactly one file. BPE-dropout is a choice of the moment and never written.
"""

from typing import Any

from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import byte_token, to_characters
from mlxgpt.text.pipeline import pre_tokenizers
from mlxgpt.text.pipeline.pipeline import Pipeline


def to_tokenizer_json(model: BPEModel, added: AddedTokens, pipeline: Pipeline) -> dict[str, Any]:
    """Return the whole file as an object; `json.dumps` of it is the file."""
    names = token_names(model, added, pipeline)
    normalizers = [step.to_json() for step in pipeline.normalizers]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_json(token) for token in added.tokens],
        "normalizer": (
            {"type": "Sequence", "normalizers": normalizers}
            if len(normalizers) > 1
            else next(iter(normalizers), None)
        ),
        "pre_tokenizer": pre_tokenizers.to_json(pipeline.pre_tokenizer),
        "post_processor": pipeline.post_processor.to_json(),
        "decoder": pipeline.decoder.to_json(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": pipeline.unk_token,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": pipeline.fuse_unk,
            "byte_fallback": model.byte_fallback,
            "ignore_merges": model.ignore_merges,
            # The library numbers the tokens outside of `vocab` onwards from its end.
            "vocab": {name: i for i, name in enumerate(names)},
            "merges": [[names[left], names[right]] for left, right in model.merges],
        },
    }


def token_names(model: BPEModel, added: AddedTokens, pipeline: Pipeline) -> list[str]:
    """Return what the file calls the ids of the model."""
    # Added tokens may stand between ordinary ones; they are named here to leave no hole.
    contents = {token.id: token.content for token in added.tokens}
    if not model.byte_fallback:
        return [
            contents[i] if token is None else to_characters(token)
            for i, token in enumerate(model.tokens[: -len(pipeline.missing_bytes) or None])
        ]
    byte_names = {i: byte_token(byte) for byte, i in enumerate(model.byte_ids)}
    return [
        byte_names.get(i) or (contents[i] if token is None else token.decode("utf-8"))
        for i, token in enumerate(model.tokens)
    ]


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
