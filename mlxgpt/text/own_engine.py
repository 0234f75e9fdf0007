"""Text -> ids -> bytes by our own code: added tokens, normalizers, words, BPE, templates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedTokens, AllowedSpecial
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.compiled.tier import warm_up, worthwhile
from mlxgpt.text.files.tokenizer_json import to_tokenizer_json, token_names
from mlxgpt.text.pipeline.pipeline import Pipeline
from mlxgpt.text.stream_decoder import ByteStreamDecoder
from mlxgpt.text.unknown_bytes import UnknownBytes

if TYPE_CHECKING:
    from mlxgpt.text.bulk_encoder import BulkEncoder


@final
class OwnEngine:
    """A model, its added tokens and its pipeline. Immutable but for caches."""

    engine: Literal["mlxgpt"] = "mlxgpt"
    fallback_reason = None

    def __init__(self, model: BPEModel, added: AddedTokens, pipeline: Pipeline) -> None:
        """Join the parts; the ids of model and added tokens together are exactly 0..V-1.

        Raises `TokenizerError` if an id is missing or belongs to two tokens.
        """
        self.model = model
        self.added = added
        self.pipeline = pipeline
        self._always = added.wanted(())
        self._bulk: BulkEncoder | None = None
        self.special_ids = frozenset(token.id for token in added.tokens if token.special)
        self._unknown = UnknownBytes(pipeline.missing_bytes) if pipeline.missing_bytes else None
        own = model.tokens[: -len(pipeline.missing_bytes) or None]
        ids = {i for i, token in enumerate(own) if token is not None}
        for token in added.tokens:
            if token.special and token.id in ids:
                raise TokenizerError(
                    f"id {token.id} belongs to an ordinary token and to '{token.content}'"
                )
        ids.update(token.id for token in added.tokens)
        missing = next((i for i in range(len(ids)) if i not in ids), None)
        if missing is not None:
            raise TokenizerError(f"id {missing} is missing: ids must be 0..V-1 without holes")
        self.vocab_size = len(ids)

    def __reduce__(self) -> tuple[object, ...]:
        return OwnEngine, (self.model, self.added, self.pipeline)

    @property
    def kind(self) -> str:
        """`"bpe"`, or `"char"` if nothing is merged."""
        return self.model.kind

    @property
    def num_merges(self) -> int:
        """How many merges there are."""
        return len(self.model.products)

    @property
    def no_dropout_reason(self) -> str | None:
        """Why there can be no BPE-dropout, or None."""
        return None if self.num_merges else "there are no merges to drop"

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of text of each id, wherever it stands but at the start."""
        names = {token.id: token.content for token in self.added.tokens}
        decoder = self.pipeline.decoder
        if decoder.byte_level:
            own = self.model.tokens
            added = {i: name.encode("utf-8") for i, name in names.items()}
            return [added.get(i) or own[i] or b"" for i in range(self.vocab_size)]
        own = token_names(self.model, self.added, self.pipeline)
        return [decoder.piece(names.get(i) or own[i]) for i in range(self.vocab_size)]

    def encode(
        self,
        text: str,
        allowed_special: AllowedSpecial,
        add_special_tokens: bool,
        dropout: Dropout | None,
    ) -> list[int]:
        """Return the ids of `text`, which holds no lone surrogates."""
        ids: list[int] = []
        for part in self._encode_parts(text, allowed_special, dropout):
            ids.extend(part if isinstance(part, list) else part.tolist())
        return self.pipeline.post_processor.apply(ids) if add_special_tokens else ids

    def encode_array(
        self, text: str, allowed_special: AllowedSpecial, dropout: Dropout | None
    ) -> np.ndarray:
        """Return the same ids, without those of the post-processor, as int32 (n,)."""
        parts = [
            np.asarray(part, np.int32)
            for part in self._encode_parts(text, allowed_special, dropout)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def use_compiled(self, num_bytes: int, notice: Callable[[str], None] | None) -> bool:
        """Encode by kernels from now on if `num_bytes` of text are worth it; return whether so."""
        if self._bulk is None and self.num_merges and worthwhile(num_bytes):
            warm_up(notice)
            from mlxgpt.text.bulk_encoder import BulkEncoder, fits  # imports numba

            if fits(self.model):
                self._bulk = BulkEncoder(self.model, self.pipeline.pre_tokenizer)
        return self._bulk is not None

    def _encode_parts(
        self, text: str, allowed_special: AllowedSpecial, dropout: Dropout | None
    ) -> Iterator[list[int] | np.ndarray]:
        wanted = self.added.wanted(allowed_special) if allowed_special else self._always
        pieces = self.added.cut(text, wanted)
        if self._bulk is not None and self._bulk.joins:
            pieces = list(pieces)
            text = "".join([piece for piece in pieces if isinstance(piece, str)])
            if self._unknown is None or not self._unknown.lost(text):
                yield from self._bulk.encode_pieces(pieces, dropout)
                return
        position = 0
        at_start = True
        for piece in pieces:
            if isinstance(piece, str):
                ids, n_bytes = self._encode_stretch(piece, dropout, position, at_start)
                position += n_bytes
                yield ids
            else:
                yield [piece.id]
            at_start = False

    def _encode_stretch(
        self, text: str, dropout: Dropout | None, position: int, at_start: bool
    ) -> tuple[list[int] | np.ndarray, int]:
        """Return the ids of normalized text without added tokens, and the bytes of its words.

        `position` is the number of bytes of all words before it, `at_start` whether nothing at all
        stands before it. Without dropout positions do not matter, and the bytes are given as 0.
        """
        split = partial(self._split, text, at_start=at_start)
        whole = self._unknown is None or not self._unknown.lost(text)
        if self._bulk is not None and whole:
            return self._bulk.encode(text, split, dropout, position)
        words = split()
        ids = self.model.encode_words(words, dropout, position)
        n_bytes = 0 if dropout is None else sum(len(word.encode("utf-8")) for word in words)
        return ids, n_bytes

    def _split(self, text: str, *, at_start: bool) -> list[str]:
        words = self.pipeline.pre_tokenizer.split(text, at_start=at_start)
        return words if self._unknown is None else self._unknown.known(text, words)

    def join(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of text of ids that are known to be in the vocabulary."""
        pieces = self.pieces
        parts = [pieces[i] for i in ids]
        if parts and self.pipeline.decoder.first_is_apart:
            parts[0] = self._first_piece(ids[0])
        whole = b"".join(parts)
        strip = self.pipeline.decoder.stripped
        return whole if strip is None else strip.apply_to_bytes(whole)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids that are known to be in the vocabulary."""
        return self.join(ids).decode("utf-8", "replace")

    def stream_decoder(self) -> ByteStreamDecoder:
        """Return a decoder of one text that takes known ids one at a time."""
        decoder = self.pipeline.decoder
        strip = decoder.stripped
        return ByteStreamDecoder(
            self.pieces.__getitem__,
            first=self._first_piece if decoder.first_is_apart else None,
            stripped=b"" if strip is None else strip.content.encode("utf-8"),
            most_stripped=0 if strip is None else strip.start,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of its tokenizer.json."""
        return to_tokenizer_json(self.model, self.added, self.pipeline)

    def part_names(self) -> dict[str, tuple[str, ...]]:
        """Return the types of the steps of each part of the file."""
        pipeline = self.pipeline
        return {
            "normalizer": _types(step.to_json() for step in pipeline.normalizers),
            "pre_tokenizer": pipeline.pre_tokenizer.names,
            "post_processor": _types(dict(t.json) for t in pipeline.post_processor.templates),
            "decoder": _types(step.to_json() for step in pipeline.decoder.steps),
        }

    def _first_piece(self, token_id: int) -> bytes:
        added = next((t.content for t in self.added.tokens if t.id == token_id), None)
        name = added or token_names(self.model, self.added, self.pipeline)[token_id]
        return self.pipeline.decoder.piece(name, first=True)


def _types(steps: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(str(step["type"]) for step in steps)
