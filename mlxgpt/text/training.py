"""Documents -> a new tokenizer; the order of the documents never matters.

Source of byte-pair encoding for text: Sennrich et al. 2016; over bytes: Radford et al. 2019.
"""

from collections.abc import Iterable, Sequence

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.byte_alphabet import from_characters
from mlxgpt.text.byte_pair_model import BytePairModel
from mlxgpt.text.char_model import CharModel, byte_token
from mlxgpt.text.learned_merges import Progress, learn_merges
from mlxgpt.text.splitting import Splitter, resolve_pattern
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer import END_OF_TEXT, Tokenizer
from mlxgpt.text.word_counts import count_words, ordinary_stretches


def train_bpe(
    documents: Iterable[str],
    vocab_size: int,
    *,
    pattern: str = "gpt2",
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    min_frequency: int = 1,
    max_token_length: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn a byte-level BPE of `vocab_size` ids: 256 bytes, merges, then the special tokens.

    `pattern` cuts text into words that no merge crosses: `"gpt2"`, `"llama3"`, `"qwen2"`, or a
    regular expression. A merge must occur `min_frequency` times, and its token is not longer than
    `max_token_length` bytes. When the documents hold too little to learn, the tokenizer is
    smaller than asked for (see its `vocab_size`). `progress(tokens, wanted)` is called after each
    merge. Raises `TokenizerError` for a setting that cannot be met.
    """
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
    for name, value in (("min_frequency", min_frequency), ("max_token_length", max_token_length)):
        if value is not None and value < 1:
            raise TokenizerError(f"{name} must be at least 1, got {value}")
    expression = resolve_pattern(pattern)
    borders = _as_added(specials, 0)
    learned = learn_merges(
        count_words(documents, Splitter([expression]), borders),
        vocab_size - len(specials),
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        forbidden=_bytes_of_names(specials),
        progress=progress,
    )
    model = BytePairModel(learned.tokens, learned.merges, [expression])
    return Tokenizer(model, _as_added(specials, len(learned.tokens)))


def train_char(
    documents: Iterable[str], *, special_tokens: Sequence[str] = (END_OF_TEXT,)
) -> Tokenizer:
    """Make a tokenizer with an id for each character of the documents, in sorted order.

    256 byte tokens follow, for characters that the documents lack, and then the special tokens.
    Raises `TokenizerError` for special tokens that cannot be told from these.
    """
    specials = list(special_tokens)
    _check_specials(specials)
    byte_names = {byte_token(byte) for byte in range(256)}
    for special in specials:
        if len(special) == 1 or special in byte_names:
            raise TokenizerError(
                f"the special token '{special}' is the name of a character or a byte; "
                "choose another one"
            )
    borders = _as_added(specials, 0)
    characters: set[str] = set()
    for document in documents:
        for stretch in ordinary_stretches(document, borders):
            characters.update(stretch)
    return Tokenizer(CharModel(sorted(characters)), _as_added(specials, len(characters) + 256))


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
