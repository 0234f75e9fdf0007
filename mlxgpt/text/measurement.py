"""Texts and a tokenizer -> what its tokens are like there: how long, how many, which, how often.

A word is a run of letters, with their marks. It is encoded as it stands in a sentence, with a space
before it, and a token that is only this space does not count. So a word means the same for all
tokenizers, whatever they themselves call one, and digits, signs and indentation are left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import regex

from mlxgpt.text.compression import Compression
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer import Tokenizer

_WORD = regex.compile(r"[\p{L}\p{M}]+")
_LETTER = regex.compile(r"\p{L}")


@dataclass(frozen=True, kw_only=True)
class WordSplits:
    """How a tokenizer cuts words; each occurrence counts."""

    num_words: int
    num_split: int
    """Words of more than one token."""
    num_tokens: int

    @property
    def split_share(self) -> float:
        """The share of words that need more than one token; 0 where there are no words."""
        return self.num_split / self.num_words if self.num_words else 0.0

    @property
    def tokens_per_word(self) -> float:
        """The mean number of tokens of a word ("fertility"); 0 where there are no words."""
        return self.num_tokens / self.num_words if self.num_words else 0.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was counted in the encodings of some texts, each encoded whole, without specials."""

    counts: np.ndarray
    """(V,) int64: how often each id occurs."""
    ordinary: np.ndarray
    """(V,) bool: the ids that text can become, which special ones are not."""
    byte_lengths: np.ndarray
    """(V,) int64: how many bytes of text each id stands for; 0 for special ones."""
    with_letter: np.ndarray
    """(V,) bool: the ids that occur and whose token holds a letter."""
    groups: dict[str, Compression]
    """Group of texts -> its bytes and tokens, in the order in which the groups were met."""
    num_texts: int
    num_changed: int
    """Texts that decoding does not give back as they were."""
    words: WordSplits

    @property
    def whole(self) -> Compression:
        """The bytes and tokens of all texts."""
        return Compression(
            num_bytes=sum(group.num_bytes for group in self.groups.values()),
            num_tokens=int(self.counts.sum()),
        )

    @property
    def vocab_use(self) -> float:
        """The share of the ordinary ids that occur at all."""
        return float(np.count_nonzero(self.counts[self.ordinary]) / max(1, self.ordinary.sum()))

    @property
    def kept_share(self) -> float:
        """The share of texts that decoding gives back exactly; 1 where there are none."""
        return 1 - self.num_changed / self.num_texts if self.num_texts else 1.0

    def most_frequent(self, n: int) -> list[int]:
        """Return the `n` ids that occur most often, the smaller id first where they are equal."""
        order = np.argsort(-self.counts, kind="stable")[:n]
        return [int(i) for i in order if self.counts[i]]

    def longest(self, n: int) -> list[int]:
        """Return the `n` ids that stand for the most bytes, of those with a letter.

        Without a letter the longest tokens of most vocabularies are rows of dashes and spaces.
        """
        lengths = np.where(self.with_letter, self.byte_lengths, 0)
        order = np.argsort(-lengths, kind="stable")[:n]
        return [int(i) for i in order if lengths[i]]


def measure(
    tokenizer: Tokenizer,
    texts: Iterable[tuple[str, str]],
    words: Mapping[str, int],
    progress: Callable[[int], None] | None = None,
) -> Measurement:
    """Encode `texts`, pairs of (group, text), and the `words` with their numbers; count.

    `progress` is called with the bytes done after each text. The result does not depend on the
    order of texts and words, but for the order of the groups.
    """
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    num_bytes: Counter[str] = Counter()
    num_tokens: Counter[str] = Counter()
    num_texts = num_changed = 0
    for group, raw in texts:
        text = repair_surrogates(raw)
        ids = tokenizer.encode(text)
        counts += np.bincount(np.asarray(ids, dtype=np.int64), minlength=len(counts))
        num_bytes[group] += len(text.encode("utf-8"))
        num_tokens[group] += len(ids)
        num_texts += 1
        num_changed += tokenizer.decode(ids) != text
        if progress is not None:
            progress(num_bytes.total())
    ordinary = np.ones(len(counts), dtype=bool)
    ordinary[list(tokenizer.special_tokens.values())] = False
    with_letter = np.zeros(len(counts), dtype=bool)
    for i in np.flatnonzero(counts):
        text = tokenizer.token_bytes(int(i)).decode("utf-8", "ignore")
        with_letter[i] = _LETTER.search(text) is not None
    return Measurement(
        counts=counts,
        ordinary=ordinary,
        byte_lengths=tokenizer.token_byte_lengths,
        with_letter=with_letter,
        groups={
            name: Compression(num_bytes=total, num_tokens=num_tokens[name])
            for name, total in num_bytes.items()
        },
        num_texts=num_texts,
        num_changed=num_changed,
        words=split_words(tokenizer, words),
    )


def find_words(texts: Iterable[str]) -> Counter[str]:
    """Return word -> number of occurrences in all texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_WORD.findall(text))
    return counts


def split_words(tokenizer: Tokenizer, words: Mapping[str, int]) -> WordSplits:
    """Encode each of the `words` once, as it stands in a sentence; they come with their numbers."""
    before = "" if _adds_space(tokenizer) else " "
    num_split = num_tokens = 0
    for word, number in words.items():
        tokens = [tokenizer.token_bytes(i) for i in tokenizer.encode(before + word)]
        while tokens and not tokens[0].strip(b" "):
            del tokens[0]
        num_split += number * (len(tokens) > 1)
        num_tokens += number * len(tokens)
    return WordSplits(num_words=sum(words.values()), num_split=num_split, num_tokens=num_tokens)


def _adds_space(tokenizer: Tokenizer) -> bool:
    """Say whether the tokenizer itself puts a space before a text, as SentencePiece does."""
    ids = tokenizer.encode("a")
    return bool(ids) and tokenizer.token_bytes(ids[0]).startswith(b" ")
