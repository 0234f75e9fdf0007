"""Small tokenizer.json files of each family, as objects, for tests that change parts of them."""

import json
import tempfile
from pathlib import Path
from typing import Any

from mlxgpt.text import Tokenizer, train_bpe, train_char

TEXT = "The hug of a pug: don't, 12 3456! café 日本 # #version a b"


def content_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer.json of one of ours."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return json.loads(Path(folder, "tokenizer.json").read_text(encoding="utf-8"))


def byte_level() -> dict[str, Any]:
    """In the way of GPT-2, with one special token."""
    return content_of(train_bpe([TEXT] * 3, 300))


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    """A Split by a regular expression."""
    found = {"Regex": pattern}
    return {"type": "Split", "pattern": found, "behavior": behavior, "invert": invert}


BYTES_AT_THE_END = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False
}  # fmt: skip


def in_a_row(*steps: dict[str, Any]) -> dict[str, Any]:
    """These pre-tokenizers and then ByteLevel."""
    return {"type": "Sequence", "pretokenizers": [*steps, BYTES_AT_THE_END]}


def added(content: str, token_id: int, **flags: bool) -> dict[str, Any]:
    """An entry of added_tokens with all its flags; special unless it is said."""
    off = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, **off, "special": True, **flags}


SPACE = "\u2581"
LLAMA_NORMALIZERS = [
    {"type": "Prepend", "prepend": SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
]
LLAMA_DECODERS = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def sentencepiece() -> dict[str, Any]:
    """In the way of Llama 2: characters, bytes for the others, spaces as U+2581."""
    content = content_of(train_char([TEXT.replace(" ", SPACE), "bns\n"], special_tokens=[]))
    vocab = content["model"]["vocab"]
    pairs = ["h u", "hu g", f"{SPACE} hug", f"{SPACE} {SPACE}", "a n", f"{SPACE} a", "T h", "1 2"]
    for pair in pairs:
        vocab[pair.replace(" ", "")] = len(vocab)
    content["model"] |= {"merges": pairs, "unk_token": "<unk>", "fuse_unk": True}
    content["added_tokens"] = [
        added("<unk>", len(vocab)), added("<s>", len(vocab) + 1), added("</s>", len(vocab) + 2)
    ]  # fmt: skip
    content["normalizer"] = {"type": "Sequence", "normalizers": LLAMA_NORMALIZERS}
    content["decoder"] = {"type": "Sequence", "decoders": LLAMA_DECODERS}
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, a],
        "pair": [begin, a, begin, b],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [len(vocab) + 1], "tokens": ["<s>"]}},
    }
    return content


def wordpiece() -> dict[str, Any]:
    """In the way of BERT."""
    words = ["[UNK]", "[CLS]", "hug", "pug", "##s", "a", "bug", ",", "##g"]
    return {
        "version": "1.0",
        "truncation": {
            "max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"
        },
        "padding": None,
        "added_tokens": [added("[UNK]", 0), added("[CLS]", 1)],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "BertProcessing", "sep": ["[UNK]", 0], "cls": ["[CLS]", 1]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(words)},
        },
    }  # fmt: skip


def unigram() -> dict[str, Any]:
    """In the way of T5."""
    mark = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    pieces = ["<unk>", SPACE, f"{SPACE}hug", "s", "b", "ug", f"{SPACE}a"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added("<unk>", 0)],
        "normalizer": None,
        "pre_tokenizer": mark,
        "post_processor": None,
        "decoder": mark,
        "model": {
            "type": "Unigram",
            "unk_id": 0,
            "vocab": [[piece, -float(i)] for i, piece in enumerate(pieces)],
            "byte_fallback": False,
        },
    }
