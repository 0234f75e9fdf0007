"""Pipelines of all kinds, small and published: the ids and texts of the `tokenizers` library.

With `MLXGPT_FUZZ=1000000` in the environment, that many texts are compared for each pipeline
instead of some hundreds.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from sample_texts import texts
from small_files import (
    LLAMA_DECODERS,
    SPACE,
    added,
    byte_level,
    in_a_row,
    sentencepiece,
    split,
)

from mlxgpt.text import Tokenizer

hf = pytest.importorskip("tokenizers")

WANTED = int(os.environ.get("MLXGPT_FUZZ", "0"))
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Digits", "individual_digits": True}
RUNS = {"type": "Digits", "individual_digits": False}
CUTS: dict[str, dict[str, Any]] = {
    "deepseek v3": in_a_row(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK)),
    "deepseek": in_a_row(
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥]+"), DIGITS
    ),
    "o200k": in_a_row(split(O200K)),
    "bloom": in_a_row(split(r" ?[^(\s|.,!?…。，、।۔،)]+")),
    "starcoder": {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
    "falcon": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Punctuation", "behavior": "Contiguous"}, BYTE_LEVEL | {"use_regex": True}
        ],
    },
    "roberta": BYTE_LEVEL | {"add_prefix_space": True},
    "prefix of each": {
        "type": "Sequence", "pretokenizers": [RUNS, BYTE_LEVEL | {"add_prefix_space": True}]
    },
    "prefix, whole": BYTE_LEVEL | {"add_prefix_space": True, "use_regex": False},
    "words": in_a_row({"type": "Whitespace"}),
    "spaces": in_a_row({"type": "WhitespaceSplit"}, {"type": "Punctuation"}),
    "delimiter": in_a_row({"type": "CharDelimiterSplit", "delimiter": "."}, RUNS),
    "metaspace": in_a_row({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}),
    "possessive": in_a_row(split(r"[^\r\n\p{L}\p{N}]?+\p{L}++| ?[^\s\p{L}]++|\s+(?!\S)|\s")),
    "lookbehind": in_a_row(split(r"(?<=\d)\s|(?<!a)b+?|\W\w")),
}  # fmt: skip
for _behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    for _invert in (False, True):
        name = f"{_behavior}, {_invert}"
        CUTS[name] = in_a_row(split(r"\w+|[^\w\s]+", _behavior, _invert))
        text = {"type": "Split", "pattern": {"String": " "}} | {"behavior": _behavior}
        CUTS[f"{name}, text"] = in_a_row(text | {"invert": _invert})
NORMALIZERS: dict[str, list[dict[str, Any]]] = {
    "nfc": [{"type": "NFC"}],
    "nfkc": [{"type": "NFKC"}, {"type": "Lowercase"}],
    "plain": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}],
    "nfkd": [{"type": "NFKD"}, {"type": "Strip", "strip_left": True, "strip_right": False}],
    "strip": [{"type": "Strip", "strip_left": True, "strip_right": True}],
    "replace": [
        {"type": "Replace", "pattern": {"Regex": r"\s+|\d"}, "content": "a "},
        {"type": "Prepend", "prepend": "<"},
    ],
}
TOKENS = [
    ("<|endoftext|>", {"rstrip": True}),
    ("<s>", {"lstrip": True}),
    ("Thes", {"single_word": True, "special": False}),
    ("12", {"single_word": True, "special": False}),
    ("  ", {"special": False, "normalized": True}),
    ("\n", {"special": False}),
    ("HUG", {"special": False, "normalized": True}),
    ("</s>", {"rstrip": True, "lstrip": True}),
    ("s>", {"special": False}),
    ("<unk>", {"normalized": True}),
]
WHOLE: dict[str, Any] = {
    "gemma": {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            **split(" ", "MergedWithPrevious"), "pattern": {"String": " "}
        },
        "decoder": {"type": "Sequence", "decoders": LLAMA_DECODERS[:3]},
    },
    "mistral": {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False
        },
    },
    "metaspace": {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Metaspace", "replacement": SPACE}, *LLAMA_DECODERS[1:3]],
        },
    },
    "never": {
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                DIGITS, {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never"}
            ],
        },
    },
    "llama": {},
}  # fmt: skip


def with_added(content: dict[str, Any]) -> dict[str, Any]:
    vocab = content["model"]["vocab"]
    tokens = []
    following = len(vocab)
    for name, flags in TOKENS:
        tokens.append(added(name, vocab.get(name, following), **flags))
        following += name not in vocab
    return {**content, "added_tokens": tokens, "post_processor": None}


def compare(folder: Path, content: dict[str, Any], seed: int, n: int, decode: bool = True) -> None:
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    compare_file(file, seed, n, decode)


def compare_file(file: Path, seed: int, n: int, decode: bool = True) -> None:
    ours = Tokenizer.load(file)
    assert ours.engine == "mlxgpt", ours.fallback_reason
    acting, quiet = hf.Tokenizer.from_file(str(file)), hf.Tokenizer.from_file(str(file))
    quiet.encode_special_tokens = True
    for done in range(0, n, 5000):
        batch = texts(min(5000, n - done), seed + done)
        for theirs, allowed, special in ((acting, "all", False), (quiet, (), True)):
            encodings = theirs.encode_batch_fast(batch, add_special_tokens=special)
            for text, encoding in zip(batch, encodings, strict=True):
                ids = ours.encode(text, allowed, add_special_tokens=special)
                assert ids == encoding.ids, ascii(text)
            if decode:
                listed = [encoding.ids for encoding in encodings]
                decoded = theirs.decode_batch(listed, skip_special_tokens=special)
                for ids, text in zip(listed, decoded, strict=True):
                    assert ours.decode(ids, skip_special=special) == text, (ids, ascii(text))


@pytest.mark.parametrize("name", CUTS)
def test_pre_tokenizers_cut_as_in_the_library(tmp_path: Path, name: str) -> None:
    compare(tmp_path, {**byte_level(), "pre_tokenizer": CUTS[name]}, 1, WANTED or 400)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_change_as_in_the_library(tmp_path: Path, name: str) -> None:
    steps = {"type": "Sequence", "normalizers": NORMALIZERS[name]}
    compare(tmp_path, {**byte_level(), "normalizer": steps}, 2, WANTED or 400)


@pytest.mark.parametrize("name", ["none", "nfc", "nfkc", "plain", "replace"])
def test_added_tokens_are_found_as_in_the_library(tmp_path: Path, name: str) -> None:
    steps = {"type": "Sequence", "normalizers": NORMALIZERS.get(name, [])}
    content = {**with_added(byte_level()), "normalizer": steps}
    # Those that a normalizer changes are decoded as they are written, not as they were found.
    compare(tmp_path, content, 3, WANTED or 600, decode=name == "none")


@pytest.mark.parametrize("name", WHOLE)
def test_text_that_is_left_whole_has_the_ids_of_the_library(tmp_path: Path, name: str) -> None:
    content = {**sentencepiece(), **WHOLE[name]}
    compare(tmp_path, content, 4, WANTED or 600)
    compare(tmp_path, with_added(content), 5, WANTED or 600, decode=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "gpt2", "llama3", "qwen3", "gpt-neox-20b", "gguf-starcoder", "smollm2-from-gguf", "llama2",
        "ortx-phi-3-mini",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:the tokenizer has no token for the byte")
def test_published_tokenizers_give_the_ids_of_the_library(shared_data: Path, name: str) -> None:
    compare_file(shared_data / "tokenizers" / name / "tokenizer.json", 6, WANTED or 1500)
