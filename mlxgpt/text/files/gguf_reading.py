"""`tokenizer.ggml.*` of a GGUF file -> the content of a tokenizer.json, and the tokenizer.

GGUF has tokens and a few names where a tokenizer.json has every step. "gpt2" is byte-level BPE,
with the name of a pre-tokenizer; "llama" is SentencePiece's BPE, with a score for each piece. Other
kinds are refused by name.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from mlxgpt.errors import MLXGPTWarning, TokenizerError, did_you_mean
from mlxgpt.text.engines import make_engine
from mlxgpt.text.files.fields import is_id, shown
from mlxgpt.text.files.gguf_patterns import WORD_CUTS
from mlxgpt.text.files.loading import parts_of
from mlxgpt.text.files.sentencepiece_merges import merges_by_score
from mlxgpt.text.pipeline.pre_tokenizers import SPACE_MARKER
from mlxgpt.text.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_TYPES = (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE)
_BORDERS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
_LLAMA_DEFAULTS = {"bos": 1, "eos": 2, "unknown": 0}
"""Ids of SentencePiece where a file of the kind "llama" names none."""


@dataclass(frozen=True)
class GGUFTokenizer:
    """What a GGUF file says of its tokenizer, in the words of a Hugging Face directory."""

    content: dict[str, Any]
    """The tokenizer.json."""
    names: dict[str, str]
    """bos_token, eos_token, pad_token, unk_token -> literal."""


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """Return the tokenizer that the metadata of a GGUF file describe; `where` names the file.

    Raises `TokenizerError` with the file and the entry for a kind that is not known, or what is
    damaged or missing. An `MLXGPTWarning` says where the words are only a guess.
    """
    read = read_gguf_tokenizer(metadata, where)
    return Tokenizer(make_engine(parts_of(read.content, where), where), read.names)


def read_gguf_tokenizer(metadata: Mapping[str, Any], where: str) -> GGUFTokenizer:
    """Return the content of the files that a Hugging Face directory would have; raises as above."""
    return _Reading(metadata, where).result()


@final
class _Reading:
    """Goes through the entries of one file."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self._all, self._where = metadata, where
        self._kind = self._text("model")
        if self._kind not in ("gpt2", "llama"):
            raise self._wrong("model", f"{shown(self._kind)} is not supported; known: gpt2, llama")
        self._tokens: list[str] = self._list("tokens", str)
        if not self._tokens:
            raise self._wrong("tokens", "is empty")
        self._types = self._token_types()
        self._drop_padding()
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        if len(self._ids) < len(self._tokens):
            twice = next(t for i, t in enumerate(self._tokens) if self._ids[t] != i)
            raise self._wrong("tokens", f"{shown(twice)} stands twice")

    def result(self) -> GGUFTokenizer:
        """Return the whole."""
        borders = {name: self._border(key) for name, key in _BORDERS.items()}
        names = {name: self._tokens[i] for name, i in borders.items() if i is not None}
        if self._get("token_type") is None:
            for name in ("bos_token", "eos_token"):
                if borders[name] is not None:
                    self._types[cast(int, borders[name])] = _CONTROL
        adds_bos = self._kind == "llama"
        if self._kind == "llama":
            parts = self._sentencepiece(names.get("unk_token"))
        else:
            parts, adds_bos = self._byte_level()
        before = self._flag("add_bos_token", adds_bos) and "bos_token"
        behind = self._flag("add_eos_token", False) and "eos_token"
        around = [self._around(name, names) if name else None for name in (before, behind)]
        content = {
            "version": "1.0",
            "added_tokens": [
                {
                    "id": i,
                    "content": token,
                    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
                    "special": kind != _USER_DEFINED,
                }
                for i, (token, kind) in enumerate(zip(self._tokens, self._types, strict=True))
                if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
            ],
            "post_processor": self._template(around[0], around[1]),
            **parts,
        }
        return GGUFTokenizer(content, names)

    def _byte_level(self) -> tuple[dict[str, Any], bool]:
        """Return the parts of the file, and whether text begins with BOS by default."""
        name = "default" if self._get("pre") is None else self._text("pre")
        if self._get("pre") is None:
            warnings.warn(
                f"{self._where} does not say how text is cut into words (tokenizer.ggml.pre); the "
                "ids of a text may not be those that the model learned",
                MLXGPTWarning,
                stacklevel=5,
            )
        if name not in WORD_CUTS:
            raise self._wrong("pre", f"{shown(name)} is not known{did_you_mean(name, WORD_CUTS)}")
        cut = WORD_CUTS[name]
        splits = [
            {"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False}
            for e in cut.expressions
        ]
        flags = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        # Qwen's own tokenizers normalize text; GGUF has no entry for it.
        qwen = name == "qwen2" and str(self._all.get("general.architecture")).startswith("qwen")
        parts = {
            "normalizer": {"type": "NFC"} if qwen else None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [*splits, {"type": "ByteLevel", **flags}],
            },
            "decoder": {"type": "ByteLevel", **flags},
            "model": {
                "type": "BPE",
                "ignore_merges": cut.ignore_merges,
                "vocab": self._vocab(),
                "merges": self._list("merges", str),
            },
        }
        return parts, cut.adds_bos

    def _sentencepiece(self, unknown: str | None) -> dict[str, Any]:
        if self._flag("remove_extra_whitespaces", False):
            raise self._wrong("remove_extra_whitespaces", "true is not supported")
        scores: list[float] = self._list("scores", (int, float))
        if len(scores) < len(self._tokens):
            raise self._wrong("scores", f"has {len(scores)} for {len(self._tokens)} tokens")
        pieces = {token: scores[i] for token, i in self._ids.items() if self._types[i] == _NORMAL}
        prefix = self._flag("add_space_prefix", True)
        marked = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARKER}
        spaces = {"type": "Replace", "pattern": {"String": SPACE_MARKER}, "content": " "}
        prepended = [{"type": "Prepend", "prepend": SPACE_MARKER}]
        stripped = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
        return {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [*(prepended if prefix else []), marked],
            },
            "pre_tokenizer": None,
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    spaces,
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    *(stripped if prefix else []),
                ],
            },
            "model": {
                "type": "BPE",
                "unk_token": unknown,
                "fuse_unk": True,
                "byte_fallback": True,
                "vocab": self._vocab(),
                "merges": merges_by_score(pieces),
            },
        }

    def _vocab(self) -> dict[str, int]:
        """Return the ids without the added tokens at the end, which other files keep apart."""
        count = len(self._tokens)
        while count > 1 and self._types[count - 1] in (_CONTROL, _USER_DEFINED):
            count -= 1
        return dict(zip(self._tokens[:count], range(count), strict=True))

    def _token_types(self) -> list[int]:
        if self._get("token_type") is None:
            return [_NORMAL] * len(self._tokens)
        types: list[int] = self._list("token_type", int)
        if len(types) < len(self._tokens):
            raise self._wrong("token_type", f"has {len(types)} for {len(self._tokens)} tokens")
        types = types[: len(self._tokens)]
        odd = next((kind for kind in types if kind not in _TYPES), None)
        if odd is not None:
            raise self._wrong("token_type", f"{odd} is not known; known: 1 to 6")
        return types

    def _drop_padding(self) -> None:
        """Take away the ids at the end that only fill the rows of the embedding."""
        count = len(self._tokens)
        while count > 1 and self._types[count - 1] == _UNUSED:
            if self._tokens[count - 1] not in (f"[PAD{count - 1}]", f"[PAD_{count - 1}]"):
                break
            count -= 1
        self._tokens, self._types = self._tokens[:count], self._types[:count]

    def _border(self, key: str) -> int | None:
        entry = f"{key}_token_id"
        value = self._get(entry)
        if value is None and self._kind == "llama":
            usual = _LLAMA_DEFAULTS.get(key, len(self._tokens))
            kinds = self._types[usual : usual + 1]
            value = usual if kinds and kinds[0] in (_UNKNOWN, _CONTROL) else None
        if value is None:
            return None
        if not is_id(value) or value >= len(self._tokens):
            raise self._wrong(entry, f"must be an id below {len(self._tokens)}, got {shown(value)}")
        return value

    def _around(self, name: str, names: Mapping[str, str]) -> str:
        """Return the literal that is put before or behind a text."""
        if name not in names:
            raise self._wrong(f"add_{name}", f"is true, but there is no {name}_id")
        return names[name]

    def _template(self, before: str | None, behind: str | None) -> dict[str, Any] | None:
        used = [name for name in (before, behind) if name is not None]
        if not used:
            return None

        def pieces(text: str, kind: int) -> list[dict[str, Any]]:
            def special(name: str | None) -> list[dict[str, Any]]:
                return [{"SpecialToken": {"id": name, "type_id": kind}}] if name else []

            return [*special(before), {"Sequence": {"id": text, "type_id": kind}}, *special(behind)]

        return {
            "type": "TemplateProcessing",
            "single": pieces("A", 0),
            "pair": [*pieces("A", 0), *pieces("B", 1)],
            "special_tokens": {
                name: {"id": name, "ids": [self._ids[name]], "tokens": [name]} for name in used
            },
        }

    def _get(self, name: str) -> Any:
        return self._all.get(f"tokenizer.ggml.{name}")

    def _text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, f"must be a text, got {shown(value)}")
        return value

    def _flag(self, name: str, default: bool) -> bool:
        value = self._get(name)
        if not isinstance(value, bool | None):
            raise self._wrong(name, f"must be true or false, got {shown(value)}")
        return default if value is None else value

    def _list(self, name: str, kind: type | tuple[type, ...]) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(entry, kind) for entry in value):
            raise self._wrong(name, f"must be a list, got {shown(value)}")
        return value

    def _wrong(self, name: str, what: str) -> TokenizerError:
        return TokenizerError(f"{self._where}: tokenizer.ggml.{name} {what}")
