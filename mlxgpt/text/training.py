"""Documents -> a new tokenizer; the order of the documents never matters.

Source of byte-pair encoding for text: Sennrich et al. 2016; over bytes: Radford et al. 2019.
"""

from collections.abc import Callable, Iterable, Sequence

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.border_tokens import END_OF_TEXT
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import byte_token, from_characters
from mlxgpt.text.bpe.learned_merges import Progress
from mlxgpt.text.bpe.piece_cutter import PieceCutter
from mlxgpt.text.bpe.splitting import Splitter, resolve_pattern
from mlxgpt.text.bpe.word_counts import Document, ordinary_stretches
from mlxgpt.text.learning import Learning
from mlxgpt.text.own_engine import OwnEngine
from mlxgpt.text.pipeline.patterns import translated
from mlxgpt.text.pipeline.pipeline import byte_level_pipeline, character_pipeline
from mlxgpt.text.pipeline.unsupported import Unsupported
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer import Tokenizer


def train_bpe(
    documents: Iterable[Document],
    vocab_size: int,
    *,
    pattern: str = "gpt2",
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    min_frequency: int = 1,
    max_token_length: int | None = None,
    progress: Progress | None = None,
    threads: int = 1,
    notice: Callable[[str], None] | None = None,
) -> Tokenizer:
    """Learn a byte-level BPE of `vocab_size` ids: 256 bytes, merges, then the special tokens.

    A document is a text, or, if it may be larger than memory, an iterable of its pieces in order.
    `pattern` cuts text into words that no merge crosses: `"gpt2"`, `"llama3"`, `"qwen2"`, or a
    regular expression; only with the first three are pieces not put together first. A merge must
    occur `min_frequency` times, and its token is not longer than `max_token_length` bytes. When the
    documents hold too little to learn, the tokenizer is smaller than asked for (see its
    `vocab_size`).

    `progress(tokens, wanted)` is called as merges are learned. Megabytes of text are counted by
    `threads` threads and learned from in machine code; `notice` is told, in one line, when that has
    to be compiled first. Neither changes what is learned. Raises `TokenizerError` for a setting
    that cannot be met.
    """
    _check_documents(documents)
    specials = list(special_tokens)
    _check_specials(specials)
    for special in specials:
        if len(special.encode("utf-8")) == 1 or len(from_characters(special) or b"") == 1:
            raise TokenizerError(
                f"the special token '{special}' is the name of a single byte; choose a longer one"
            )
    smallest = 256 + len(specials)
    if vocab_size < smallest:
        raise TokenizerError(
            f"a vocabulary of {vocab_size} is too small: 256 bytes and {len(specials)} special "
            f"tokens need at least {smallest}"
        )
    for name, value in (
        ("min_frequency", min_frequency),
        ("max_token_length", max_token_length),
        ("threads", threads),
    ):
        if value is not None and value < 1:
            raise TokenizerError(f"{name} must be at least 1, got {value}")
    expression = resolve_pattern(pattern)
    Splitter([expression])  # what is no regular expression at all is refused in other words
    try:
        pipeline = byte_level_pipeline(expression)
        splitter = Splitter([translated(expression)])
    except Unsupported as e:
        raise TokenizerError(f"{e} means something else in other programs; choose another") from e
    learning = Learning(
        n_tokens=vocab_size - len(specials),
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        forbidden=_bytes_of_names(specials),
        progress=progress,
    )
    stretches = ordinary_stretches(
        documents, PieceCutter(expression, specials), _as_added(specials, 0)
    )
    learned = learning.learn(stretches, splitter, threads, notice)
    model = BPEModel(learned.tokens, learned.merges)
    added = _as_added(specials, len(learned.tokens))
    return Tokenizer(OwnEngine(model, added, pipeline))


def train_char(
    documents: Iterable[Document], *, special_tokens: Sequence[str] = (END_OF_TEXT,)
) -> Tokenizer:
    """Make a tokenizer with an id for each character of the documents, in sorted order.

    256 byte tokens follow, for characters that the documents lack, and then the special tokens.
    A document may come in pieces, as for `train_bpe`.
    Raises `TokenizerError` for special tokens that cannot be told from these.
    """
    _check_documents(documents)
    specials = list(special_tokens)
    _check_specials(specials)
    byte_names = {byte_token(byte) for byte in range(256)}
    for special in specials:
        if len(special) == 1 or special in byte_names:
            raise TokenizerError(
                f"the special token '{special}' is the name of a character or a byte; "
                "choose another one"
            )
    characters: set[str] = set()
    cutter = PieceCutter(None, specials)
    for stretch in ordinary_stretches(documents, cutter, _as_added(specials, 0)):
        characters.update(stretch)
    tokens = [*(c.encode("utf-8") for c in sorted(characters)), *map(_byte, range(256))]
    byte_ids = range(len(characters), len(tokens))
    model = BPEModel(tokens, [], byte_ids=byte_ids, byte_fallback=True)
    return Tokenizer(OwnEngine(model, _as_added(specials, len(tokens)), character_pipeline()))


def _byte(byte: int) -> bytes:
    return bytes([byte])


def _check_documents(documents: object) -> None:
    """Refuse what is iterable and yet no list of texts: each character would be a document."""
    if isinstance(documents, str | bytes):
        kind = type(documents).__name__
        raise TokenizerError(f"documents must be several texts, got one {kind}: put it in a list")


def _check_specials(specials: list[str]) -> None:
    for special in specials:
        if not special or repair_surrogates(special) != special:
            raise TokenizerError(f"a special token must be a text, got {special!r}")
    if len(set(specials)) != len(specials):
        twice = next(special for special in specials if specials.count(special) > 1)
        raise TokenizerError(f"the special token '{twice}' is given twice")


def _as_added(specials: Sequence[str], first_id: int) -> AddedTokens:
    return AddedTokens(
        AddedToken(id=first_id + i, content=special) for i, special in enumerate(specials)
    )


def _bytes_of_names(specials: Sequence[str]) -> set[bytes]:
    """Return what no merge may produce: the bytes of the specials, and those written like them."""
    written_alike = (from_characters(special) for special in specials)
    return {s.encode("utf-8") for s in specials} | {b for b in written_alike if b is not None}
