"""Documents -> how often each word occurs, as bytes; the only thing that BPE training looks at."""

from collections import Counter
from collections.abc import Iterable, Iterator

from mlxgpt.text.added_tokens import AddedTokens
from mlxgpt.text.bpe.piece_cutter import PIECE, PieceCutter
from mlxgpt.text.bpe.splitting import Splitter
from mlxgpt.text.surrogates import repaired

Document = str | Iterable[str]
"""A text, or its pieces in order, where it may be too large to be held whole."""

_LISTED = 1 << 22
"""Characters up to which the words of a stretch are listed at once: faster, but more memory."""


def ordinary_stretches(
    documents: Iterable[Document], cutter: PieceCutter, specials: AddedTokens
) -> Iterator[str]:
    """Yield what stands between the special literals of the documents, surrogates repaired.

    Long documents come in several stretches. No word of the documents is in two stretches.
    """
    wanted = specials.wanted("all")
    for document in documents:
        parts = _parts(document) if isinstance(document, str) else document
        for piece in cutter.cut(repaired(parts)):
            for part in specials.cut(piece, wanted) if wanted else (piece,):
                if isinstance(part, str):
                    yield part


def _parts(text: str) -> Iterable[str]:
    if len(text) <= PIECE:
        return (text,)
    return (text[i : i + PIECE] for i in range(0, len(text), PIECE))


def count_words(stretches: Iterable[str], splitter: Splitter) -> Counter[str]:
    """Return word -> number of occurrences in all stretches, whatever their order."""
    counts: Counter[str] = Counter()
    length = 0
    for stretch in stretches:
        length += len(stretch)
        counts.update(
            splitter.split(stretch) if len(stretch) <= _LISTED else splitter.iterate(stretch)
        )
    assert length == sum(len(word) * count for word, count in counts.items()), "text was lost"
    return counts


def as_bytes(counts: Counter[str]) -> dict[bytes, int]:
    """Return the same counts by the UTF-8 bytes of the words."""
    return {word.encode("utf-8"): count for word, count in counts.items()}
