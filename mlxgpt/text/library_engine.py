"""Text -> ids -> text by the `tokenizers` library, for files that ask for what is not ours.

What is not BPE, and parts that are not implemented, go through here as a whole: words of one engine
with ids of another would be neither's.
"""

import copy
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens, AllowedSpecial
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.stream_decoder import TextStreamDecoder

if TYPE_CHECKING:
    import tokenizers

Result = TypeVar("Result")

_MOST_VARIANTS = 8
"""Sets of allowed special tokens whose tokenizer is kept."""


@final
class LibraryEngine:
    """The whole pipeline of a file in the library. Immutable but for caches."""

    engine: Literal["tokenizers"] = "tokenizers"

    def __init__(self, content: dict[str, Any], added: Sequence[AddedToken], reason: str) -> None:
        """Take the content of a tokenizer.json; `reason` is the part that is not ours.

        Raises `TokenizerError` for a file that the library refuses, or gives other ids than it
        says.
        """
        self.content = content
        self.fallback_reason = reason
        self._tokens = tuple(added)
        # The library normalizes by itself: here only names and flags are of use.
        self.added = AddedTokens(_unnormalized(token) for token in added)
        self.special_ids = frozenset(token.id for token in added if token.special)
        self._variants: dict[frozenset[str], tokenizers.Tokenizer] = {}
        self._library = self._build(frozenset())
        self.vocab_size = self._checked_size()

    def __reduce__(self) -> tuple[object, ...]:
        return LibraryEngine, (self.content, self._tokens, self.fallback_reason)

    @cached_property
    def kind(self) -> str:
        """The type of the model in small letters, such as `"wordpiece"`."""
        named = self.content["model"].get("type")
        return str(named or type(self._library.model).__name__).lower()

    @property
    def no_dropout_reason(self) -> str:
        """Why there can be no BPE-dropout."""
        return (
            f"the `tokenizers` library does the whole encoding, because of {self.fallback_reason}"
        )

    @property
    def num_merges(self) -> int:
        """How many merges there are."""
        merges = self.content["model"].get("merges")
        return len(merges) if isinstance(merges, list) else 0

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of text of each id behind another token, as far as the library shows them."""
        own = self._library.get_vocab(with_added_tokens=True)
        special = {token.id: token.content.encode("utf-8") for token in self._tokens}
        anchor = next(i for i in range(self.vocab_size) if i not in special)
        before = len(self.decode([anchor]))
        pairs = [[anchor, i] for i in range(self.vocab_size)]
        texts = _ask(lambda: self._library.decode_batch(pairs, skip_special_tokens=False))
        pieces = [text[before:].encode("utf-8") for text in texts]
        if self.content["model"].get("byte_fallback"):
            for byte in range(256):
                i = own.get(f"<0x{byte:02X}>")
                if i is not None:
                    pieces[i] = bytes([byte])
        return [special.get(i, piece) for i, piece in enumerate(pieces)]

    def encode(
        self,
        text: str,
        allowed_special: AllowedSpecial,
        add_special_tokens: bool,
        dropout: Dropout | None,
    ) -> list[int]:
        """Return the ids of `text`, which holds no lone surrogates."""
        assert dropout is None
        wanted = self.added.wanted(allowed_special) if allowed_special else frozenset()
        allowed = frozenset(t.content for t in self._tokens if t.special) & wanted
        library = self._variant(allowed)
        found = _ask(lambda: library.encode(text, add_special_tokens=add_special_tokens))
        acting = {t.id for t in self._tokens if t.content in allowed} | {self._unknown_id}
        control = self.special_ids - acting
        if control.isdisjoint(found.ids):
            return found.ids
        # The model may have the literal of a special token as a piece of its own.
        by_template = found.special_tokens_mask
        pairs = zip(found.ids, by_template, strict=True)
        return [self._unknown(i) if i in control and not mask else i for i, mask in pairs]

    def encode_array(
        self, text: str, allowed_special: AllowedSpecial, dropout: Dropout | None
    ) -> np.ndarray:
        """Return the same ids, without those of the post-processor, as int32 (n,)."""
        return np.array(self.encode(text, allowed_special, False, dropout), np.int32)

    def use_compiled(self, num_bytes: int, notice: Callable[[str], None] | None) -> bool:  # noqa: ARG002
        """Return False: the library is compiled in its own way."""
        return False

    @cached_property
    def _unknown_id(self) -> int | None:
        model = self.content["model"]
        if isinstance(model.get("unk_id"), int):
            return model["unk_id"]
        name = model.get("unk_token")
        return self._library.token_to_id(name) if isinstance(name, str) else None

    def _unknown(self, token_id: int) -> int:
        """Return what ordinary text with the literal of a special token becomes instead of it."""
        if self._unknown_id is None:
            name = next(t.content for t in self._tokens if t.id == token_id)
            raise TokenizerError(
                f"the text holds '{name}', which this tokenizer cannot tell from its special "
                "token; take it out, or allow it"
            )
        return self._unknown_id

    def join(self, ids: Sequence[int]) -> bytes:
        """Return the text of known ids as UTF-8."""
        if len(ids) == 1:
            return self.pieces[ids[0]]
        return self.decode(ids).encode("utf-8")

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of known ids, special ones included."""
        return _ask(lambda: self._library.decode(list(ids), skip_special_tokens=False))

    def stream_decoder(self) -> TextStreamDecoder:
        """Return a decoder of one text that takes known ids one at a time."""
        return TextStreamDecoder(self.decode)

    def to_json(self) -> dict[str, Any]:
        """Return the content of its tokenizer.json, as it was read."""
        return self.content

    def part_names(self) -> dict[str, tuple[str, ...]]:
        """Return the types of the steps of each part of the file."""
        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
        return {part: _types(self.content.get(part)) for part in parts}

    def _variant(self, allowed: frozenset[str]) -> "tokenizers.Tokenizer":
        """Return the library's tokenizer in which only these of the special tokens act."""
        if not allowed:
            return self._library
        if allowed not in self._variants:
            if len(self._variants) >= _MOST_VARIANTS:
                self._variants.clear()
            self._variants[allowed] = self._build(allowed)
        return self._variants[allowed]

    def _build(self, allowed: frozenset[str]) -> "tokenizers.Tokenizer":
        import tokenizers

        content = self.content
        if allowed:
            # Those that are not special always act; for the others the library has a switch.
            content = {**content, "added_tokens": copy.deepcopy(content["added_tokens"])}
            for token in content["added_tokens"]:
                token["special"] = token["special"] and token["content"] not in allowed
        library = _ask(lambda: tokenizers.Tokenizer.from_str(json.dumps(content)))
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        return library

    def _checked_size(self) -> int:
        vocab = _ask(lambda: self._library.get_vocab(with_added_tokens=True))
        for token in self._tokens:
            if vocab.get(token.content) != token.id:
                raise TokenizerError(
                    f"added_tokens gives '{token.content}' the id {token.id}, "
                    f"the library {vocab.get(token.content)}"
                )
        ids = sorted(vocab.values())
        for expected, found in enumerate(ids):
            if found != expected:
                what = "is missing" if found > expected else "belongs to two tokens"
                raise TokenizerError(
                    f"the ids have a hole or a double: {min(expected, found)} {what}"
                )
        if not ids or all(i in self.special_ids for i in ids):
            raise TokenizerError("model.vocab holds no ordinary token")
        return len(ids)


def _unnormalized(token: AddedToken) -> AddedToken:
    return AddedToken(id=token.id, content=token.content, special=token.special)


def _ask(question: "Callable[[], Result]") -> Result:
    """Return the library's answer; what it refuses, in whatever way, becomes a `TokenizerError`."""
    try:
        return question()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as e:  # a panic in Rust is no Exception
        raise TokenizerError(f"the `tokenizers` library says: {shown_error(e)}") from e


def shown_error(error: BaseException) -> str:
    """Return the message of an error on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _types(component: Any) -> tuple[str, ...]:
    if not isinstance(component, dict):
        return ()
    for members in ("normalizers", "pretokenizers", "processors", "decoders"):
        if component.get("type") == "Sequence" and isinstance(component.get(members), list):
            return tuple(name for part in component[members] for name in _types(part))
    return (str(component.get("type")),)
