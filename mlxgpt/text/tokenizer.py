"""str -> ids -> str: the one tokenizer that all other folders see, whatever is inside.

Text from outside is data: a literal such as `<|endoftext|>` in it is encoded as ordinary text,
unless the caller says that this name is allowed to act.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Literal, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AllowedSpecial
from mlxgpt.text.border_tokens import end_of_text, names_to_save
from mlxgpt.text.bpe.dropout import Dropout, check_rate
from mlxgpt.text.engines import make_engine
from mlxgpt.text.files.loading import read_tokenizer, tokenizer_file
from mlxgpt.text.files.saving import is_single_file, write_tokenizer
from mlxgpt.text.files.tokenizer_config import read_names
from mlxgpt.text.library_engine import LibraryEngine
from mlxgpt.text.own_engine import OwnEngine
from mlxgpt.text.stream_decoder import StreamDecoder
from mlxgpt.text.surrogates import repair_surrogates


@final
class Tokenizer:
    """A vocabulary and the rule that turns text into its ids. Immutable; equal if the ids are.

    Made by `train_bpe`, `train_char` or `Tokenizer.load`. It pickles without its caches, so that
    worker processes can have it.
    """

    def __init__(
        self, engine: OwnEngine | LibraryEngine, names: Mapping[str, str] | None = None
    ) -> None:
        """Take what encodes and decodes, and `names` of border tokens: eos_token -> `</s>`..."""
        self._engine = engine
        self._names = None if names is None else dict(names)
        self._literals = {token.content: token.id for token in engine.added.tokens}
        self._eot = end_of_text(self._literals, self._names)

    def __reduce__(self) -> tuple[object, ...]:
        return Tokenizer, (self._engine, self._names)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer.json file or the directory that holds one.

        Nothing in the file is skipped. What is not implemented here is done by the `tokenizers`
        library, as a whole, and announced by an `MLXGPTWarning` that names the part. Raises
        `TokenizerError`, naming the file and the entry, for a file that is damaged.
        """
        file = tokenizer_file(Path(path))
        engine = make_engine(read_tokenizer(file), str(file))
        return cls(engine, read_names(file.parent))

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json into the directory `path`.

        A `path` that ends in `.json` is the file itself, without the second one; it is refused for
        a tokenizer whose end-of-text token only stands in the second one. An existing file is
        replaced at once or not at all. Equal tokenizers give the same bytes.
        """
        if is_single_file(Path(path)) and self._eot != end_of_text(self._literals, None):
            raise TokenizerError(
                f"cannot write {path} alone: only tokenizer_config.json says that '{self._eot}' "
                "ends a document; give a directory"
            )
        write_tokenizer(Path(path), self._engine.to_json(), self.border_names())

    @property
    def kind(self) -> str:
        """`"bpe"`, `"char"` for one id per character, or another type of model in small letters."""
        return self._engine.kind

    @property
    def engine(self) -> Literal["mlxgpt", "tokenizers"]:
        """Whose code encodes: our own, or the library's."""
        return self._engine.engine

    @property
    def fallback_reason(self) -> str | None:
        """The part of the file for which the library is needed, or None."""
        return self._engine.fallback_reason

    @property
    def supports_dropout(self) -> bool:
        """Whether `encode` takes a `dropout` above 0."""
        return self._engine.no_dropout_reason is None

    @property
    def no_dropout_reason(self) -> str | None:
        """Why it does not, or None."""
        return self._engine.no_dropout_reason

    @property
    def vocab_size(self) -> int:
        """The number V of all ids, special ones included; the ids are 0..V-1."""
        return self._engine.vocab_size

    @property
    def special_tokens(self) -> dict[str, int]:
        """Literal -> id of the special tokens, ordered by id."""
        return {token.content: token.id for token in self._engine.added.tokens if token.special}

    @property
    def eot_id(self) -> int | None:
        """The id of the token that ends a document, or None if there is none.

        That is `<|endoftext|>`, else the `eos_token` of the tokenizer_config.json, else the first
        there is of the names that are usual for it, such as `</s>`.
        """
        return None if self._eot is None else self._literals[self._eot]

    @property
    def num_merges(self) -> int:
        """How many merges there are; 0 for a character tokenizer."""
        return self._engine.num_merges

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of the Splits that cut text into words, in order; ours only."""
        engine = self._engine
        return engine.pipeline.pre_tokenizer.patterns if isinstance(engine, OwnEngine) else ()

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """normalizer, pre_tokenizer, post_processor, decoder -> the types of their steps."""
        return self._engine.part_names()

    @property
    def byte_fallback(self) -> bool:
        """Whether characters without a token are spelled by byte tokens."""
        return bool(self._setting("byte_fallback"))

    @property
    def ignore_merges(self) -> bool:
        """Whether a word that is a token is not merged."""
        return bool(self._setting("ignore_merges"))

    @cached_property
    def content_hash(self) -> str:
        """sha256 (hex) over all that the ids of a text depend on; the key for caches of ids."""
        content = {**self._engine.to_json(), "truncation": None, "padding": None}
        whole = {"identity": 2, "end_of_text": self._eot, "file": content}
        canonical = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    @cached_property
    def token_byte_lengths(self) -> np.ndarray:
        """(V,) int64, read-only: how many bytes of text each id stands for; 0 for special ones."""
        lengths = np.array([len(piece) for piece in self._engine.pieces], dtype=np.int64)
        lengths[list(self._engine.special_ids)] = 0
        lengths.setflags(write=False)
        return lengths

    def encode(
        self,
        text: str,
        allowed_special: AllowedSpecial = (),
        *,
        add_special_tokens: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[int]:
        """Return the ids of `text`.

        The literal of a special token is ordinary text unless its name is in `allowed_special` or
        that is `"all"`; added tokens that are not special always act. `add_special_tokens` puts
        around the ids what the file's post-processor says, such as BOS. `dropout` is the rate of
        BPE-dropout, a function of `seed` and the text alone (see `Dropout`). Surrogate pairs become
        their character, lone surrogates U+FFFD. Raises `TokenizerError` for a name in
        `allowed_special` that is no special token, a rate outside of [0, 1], and a rate above 0 if
        `supports_dropout` is False.
        """
        dropping = self._dropping(dropout, seed)
        return self._engine.encode(
            repair_surrogates(text), allowed_special, add_special_tokens, dropping
        )

    def encode_array(
        self,
        text: str,
        allowed_special: AllowedSpecial = (),
        *,
        add_special_tokens: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> np.ndarray:
        """Return the same ids as `encode` as an int32 array (n,); for bulk (`use_compiled`)."""
        if add_special_tokens:
            ids = self.encode(
                text, allowed_special, add_special_tokens=True, dropout=dropout, seed=seed
            )
            return np.array(ids, dtype=np.int32)
        dropping = self._dropping(dropout, seed)
        return self._engine.encode_array(repair_surrogates(text), allowed_special, dropping)

    def use_compiled(self, num_bytes: int, notice: Callable[[str], None] | None = None) -> bool:
        """Say that `num_bytes` of text are to be encoded; return whether kernels will do it.

        From megabytes on machine code is worth its start (numba's import, and on the first use on
        a machine some seconds of compiling, of which `notice` is told in a line). Ids and dropout
        are the same either way; from then on several threads may encode at once without waiting
        for each other. Calling it again costs nothing.
        """
        return self._engine.use_compiled(num_bytes, notice)

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD.

        Special tokens appear as their literal, or not at all with `skip_special`. A space that the
        file puts before a text is taken away as its decoder says. Raises `TokenizerError` naming
        an id that is not in 0..V-1.
        """
        return self._engine.decode(self._checked(ids, skip_special))

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`, literals of special tokens included; raises as `decode`."""
        return self._engine.join(self._checked(ids, skip_special=False))

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of text of one id, wherever it stands but at the start; see `decode`."""
        return self._engine.pieces[self._checked_id(token_id)]

    def stream_decoder(self, skip_special: bool = False) -> StreamDecoder:
        """Return a decoder that takes ids one at a time and never emits half a character."""
        skipped = self._engine.special_ids if skip_special else ()
        return StreamDecoder(self._engine.stream_decoder, self._checked_id, skipped)

    def _dropping(self, rate: float, seed: int) -> Dropout | None:
        check_rate(rate)
        if rate > 0 and self.no_dropout_reason is not None:
            raise TokenizerError(
                f"BPE-dropout is not possible with this tokenizer: {self.no_dropout_reason}"
            )
        return Dropout(rate, seed) if rate > 0 else None

    def _checked(self, ids: Iterable[int], skip_special: bool) -> list[int]:
        checked = [index(i) for i in ids]
        if checked:
            self._checked_id(min(checked))
            self._checked_id(max(checked))
        if skip_special:
            return [i for i in checked if i not in self._engine.special_ids]
        return checked

    def _checked_id(self, token_id: int) -> int:
        checked = index(token_id)
        if not 0 <= checked < self.vocab_size:
            raise TokenizerError(
                f"id {checked} is not in this vocabulary, whose ids are 0..{self.vocab_size - 1}"
            )
        return checked

    def border_names(self) -> dict[str, str]:
        """Return bos_token, eos_token... -> literal, as tokenizer_config.json has them."""
        first = None
        if isinstance(self._engine, OwnEngine):
            first = self._engine.pipeline.post_processor.first_id()
        literal = next((name for name, i in self._literals.items() if i == first), None)
        return names_to_save(self._eot, literal, self._names)

    def _setting(self, name: str) -> object:
        engine = self._engine
        if isinstance(engine, OwnEngine):
            return getattr(engine.model, name)
        return engine.content["model"].get(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"Tokenizer(kind='{self.kind}', vocab_size={self.vocab_size})"
