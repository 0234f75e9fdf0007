"""Small BPE models for the tests of the kernels, with their plain twins."""

import random
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mlxgpt.text.bpe.learned_merges import learn_merges
from mlxgpt.text.compiled.encoder import CompiledEncoder

PIECES = ["'", "s", "t", "re", "ll", "'S", "'LL", "ſ", " ", "  ", "\n", "\r\n", "\t", "1", "23"]
PIECES += [
    "4567",
    "a",
    "Z",
    "é",
    "中文",
    "नमस्ते",
    "👨‍👩‍👧",
    "!",
    "...",
    "_",
    "def ",
    "über",
    "привет",
]
PIECES += [" the", "aaaaaaa", "====", "      ", "\u3000", "\u00a0", "\0", "½", "\x1c", "\x85"]
PIECES += ["ab" * 9, "abc" * 30, "ba" * 150, "\u0378", "\U0010ffff", "١", "'Re", "'d", "K", "ﬅ"]


def fuzzed(n: int, seed: int = 0, longest: int = 40) -> list[str]:
    """Return `n` texts of pieces that splitting and merging may stumble over."""
    drawn = random.Random(seed)
    texts = []
    for i in range(n):
        size = drawn.randint(0, longest)
        if i % 4:
            texts.append("".join(drawn.choices(PIECES, k=size)))
        else:
            planes = ((0, 0x80), (0, 0x3000), (0, 0xD800), (0xE000, 0x110000))
            points = [drawn.randrange(*drawn.choice(planes)) for _ in range(size)]
            texts.append("".join(map(chr, points)))
    return texts


@dataclass(frozen=True, eq=False)
class SmallModel:
    """A byte-level BPE model."""

    byte_ids: list[int]
    merges: list[tuple[int, int]]
    products: list[int]
    char_ids: dict[str, int] | None = None
    spelled: dict[int, bytes] = field(default_factory=dict)
    """id -> its bytes"""

    @cached_property
    def table(self) -> dict[tuple[int, int], tuple[int, int]]:
        made = enumerate(zip(self.merges, self.products, strict=True))
        return {pair: (rank, product) for rank, (pair, product) in made}

    def encoder(self, **options: int) -> CompiledEncoder:
        return CompiledEncoder(
            self.byte_ids, self.merges, self.products, char_ids=self.char_ids, **options
        )

    def symbols(self, word: bytes) -> list[int]:
        if self.char_ids is None:
            return [self.byte_ids[byte] for byte in word]
        ids: list[int] = []
        for char in word.decode():
            known = self.char_ids.get(char)
            ids += [self.byte_ids[b] for b in char.encode()] if known is None else [known]
        return ids

    def bytes_of(self, ids: np.ndarray) -> bytes:
        return b"".join(self.spelled[i] for i in ids.tolist())


def learned(n_merges: int = 600, seed: int = 1, shuffled: bool = False) -> SmallModel:
    """Learn from fuzzed texts; `shuffled` merges may come before those that make their parts."""
    words = [text.encode() for text in fuzzed(400, seed, longest=6) if text]
    found = learn_merges({word: 1 + len(word) % 5 for word in words}, 256 + n_merges)
    ids = {token: i for i, token in enumerate(found.tokens)}
    merges = list(found.merges)
    if shuffled:
        random.Random(seed).shuffle(merges)
    products = [ids[found.tokens[a] + found.tokens[b]] for a, b in merges]
    byte_ids = [ids[bytes([byte])] for byte in range(256)]
    return SmallModel(byte_ids, merges, products, spelled=dict(enumerate(found.tokens)))


def with_characters() -> SmallModel:
    """Return a model whose symbols are characters, some pairs of which lead to one product."""
    chars = {char: 300 + i for i, char in enumerate("abé中 ▁語😀")}
    a, b, e, zh = (chars[c] for c in "abé中")
    merges = [(a, b), (b, a), (a, a), (1000, a), (a, 1001), (1000, 1000), (zh, e), (1005, 1003)]
    products = [1000, 1001, 1002, 1003, 1003, 1004, 1005, 1006]
    spelled = {byte: bytes([byte]) for byte in range(256)}
    spelled |= {i: char.encode() for char, i in chars.items()}
    for (left, right), product in zip(merges, products, strict=True):
        spelled[product] = spelled[left] + spelled[right]
    return SmallModel(list(range(256)), merges, products, chars, spelled)
