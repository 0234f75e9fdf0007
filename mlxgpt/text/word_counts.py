"""Documents -> how often each word occurs, as bytes; the only thing that BPE training looks at."""

from collections import Counter
from collections.abc import Iterable

from mlxgpt.text.added_tokens import AddedTokens
from mlxgpt.text.splitting import Splitter
from mlxgpt.text.surrogates import repair_surrogates

_HELD_AT_ONCE = 1 << 22
"""Characters up to which the words of a stretch are listed at once: faster, but more memory."""


def count_words(
    documents: Iterable[str], splitter: Splitter, specials: AddedTokens
) -> Counter[bytes]:
    """Return word -> number of occurrences in all `documents`, whatever their order.

    Literals of special tokens are cut out first: they count as borders, never as text.
    """
    counts: Counter[str] = Counter()
    for document in documents:
        for stretch in ordinary_stretches(document, specials):
            if len(stretch) <= _HELD_AT_ONCE:
                counts.update(splitter.split(stretch))
            else:
                counts.update(splitter.iterate(stretch))
    return Counter({word.encode("utf-8"): count for word, count in counts.items()})


def ordinary_stretches(document: str, specials: AddedTokens) -> Iterable[str]:
    """Yield what stands between the special literals of a document, surrogates repaired."""
    for piece in specials.cut(repair_surrogates(document), specials.wanted("all")):
        if isinstance(piece, str):
            yield piece
