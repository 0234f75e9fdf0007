"""str -> ids -> str: the one tokenizer that all other folders see, whatever model is inside.

Text from outside is data: a literal such as `<|endoftext|>` in it is encoded as ordinary text,
unless the caller says that this name is allowed to act.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property, partial
from operator import index
from pathlib import Path
from typing import Literal, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedTokens, AllowedSpecial
from mlxgpt.text.byte_pair_model import BytePairModel
from mlxgpt.text.char_model import CharModel
from mlxgpt.text.loading import read_tokenizer
from mlxgpt.text.saving import write_tokenizer
from mlxgpt.text.stream_decoder import StreamDecoder
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer_json import identity

END_OF_TEXT = "<|endoftext|>"
"""The special token that ends a document."""


@final
class Tokenizer:
    """A vocabulary and the rule that turns text into its ids. Immutable; equal if the ids are.

    Made by `train_bpe`, `train_char` or `Tokenizer.load`. It pickles without its caches, so that
    worker processes can have it.
    """

    def __init__(self, model: BytePairModel | CharModel, added: AddedTokens) -> None:
        """Join a model and its added tokens; together their ids are exactly 0..V-1.

        Raises `TokenizerError` if an id is missing or belongs to two tokens.
        """
        self._model = model
        self._added = added
        table: dict[int, bytes] = {i: t for i, t in enumerate(model.tokens) if t is not None}
        for token in added.tokens:
            if token.special and token.id in table:
                raise TokenizerError(
                    f"id {token.id} belongs to an ordinary token and to '{token.content}'"
                )
            table[token.id] = token.content.encode("utf-8")
        missing = next((i for i in range(len(table)) if i not in table), None)
        if missing is not None:
            raise TokenizerError(f"id {missing} is missing: ids must be 0..V-1 without holes")
        self._bytes = [table[i] for i in range(len(table))]
        self._special_ids = frozenset(t.id for t in added.tokens if t.special)
        self._always = added.wanted(())

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[BytePairModel | CharModel, AddedTokens]]:
        return Tokenizer, (self._model, self._added)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer.json file or the directory that holds one.

        Raises `TokenizerError`, naming the file and the component, for whatever cannot be read
        exactly as it is meant: nothing is skipped.
        """
        return cls(*read_tokenizer(Path(path)))

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json into the directory `path`.

        A `path` that ends in `.json` is the file itself, without the second one. An existing file
        is replaced at once or not at all. Equal tokenizers give the same bytes.
        """
        eos = END_OF_TEXT if self.eot_id is not None else None
        write_tokenizer(Path(path), self._model, self._added, eos)

    @property
    def kind(self) -> Literal["bpe", "char"]:
        """`"bpe"` for byte-level byte-pair encoding, `"char"` for one id per character."""
        return self._model.kind

    @property
    def vocab_size(self) -> int:
        """The number V of all ids, special ones included; the ids are 0..V-1."""
        return len(self._bytes)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Literal -> id of the special tokens, ordered by id."""
        return {token.content: token.id for token in self._added.tokens if token.special}

    @property
    def eot_id(self) -> int | None:
        """The id of `<|endoftext|>`, or None if there is no such token."""
        return self.special_tokens.get(END_OF_TEXT)

    @property
    def num_merges(self) -> int:
        """How many merges were learned; 0 for a character tokenizer."""
        return len(self._model.merges) if isinstance(self._model, BytePairModel) else 0

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions that cut text into words, applied one after the other."""
        return self._model.patterns if isinstance(self._model, BytePairModel) else ()

    @cached_property
    def content_hash(self) -> str:
        """sha256 (hex) over all that the ids of a text depend on; the key for caches of ids."""
        canonical = json.dumps(identity(self._model, self._added), separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    @cached_property
    def token_byte_lengths(self) -> np.ndarray:
        """(V,) int64, read-only: how many bytes of text each id stands for; 0 for special ones."""
        lengths = np.array(
            [0 if i in self._special_ids else len(token) for i, token in enumerate(self._bytes)],
            dtype=np.int64,
        )
        lengths.setflags(write=False)
        return lengths

    def encode(self, text: str, allowed_special: AllowedSpecial = ()) -> list[int]:
        """Return the ids of `text`.

        The literal of a special token is ordinary text unless its name is in `allowed_special` or
        that is `"all"`. Surrogate pairs become their character, lone surrogates U+FFFD. Raises
        `TokenizerError` for a name in `allowed_special` that is no special token.
        """
        text = repair_surrogates(text)
        wanted = self._added.wanted(allowed_special) if allowed_special else self._always
        if not wanted:
            return self._model.encode(text)
        ids: list[int] = []
        for piece in self._added.cut(text, wanted):
            if isinstance(piece, str):
                ids.extend(self._model.encode(piece))
            else:
                ids.append(piece.id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD.

        Special tokens give their literal, or nothing with `skip_special`. Raises `TokenizerError`
        naming an id that is not in 0..V-1.
        """
        return self._join(ids, skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`, literals of special tokens included; raises as `decode`."""
        return self._join(ids, skip_special=False)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one id; raises as `decode`."""
        return self._join([token_id], skip_special=False)

    def stream_decoder(self, skip_special: bool = False) -> StreamDecoder:
        """Return a decoder that takes ids one at a time and never emits half a character."""
        return StreamDecoder(partial(self._join, skip_special=skip_special))

    def _join(self, ids: Iterable[int], skip_special: bool) -> bytes:
        checked = [index(i) for i in ids]
        if checked and (min(checked) < 0 or max(checked) >= self.vocab_size):
            wrong = next(i for i in checked if not 0 <= i < self.vocab_size)
            raise TokenizerError(
                f"id {wrong} is not in this vocabulary, whose ids are 0..{self.vocab_size - 1}"
            )
        if skip_special:
            checked = [i for i in checked if i not in self._special_ids]
        return b"".join([self._bytes[i] for i in checked])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"Tokenizer(kind='{self.kind}', vocab_size={self.vocab_size})"
