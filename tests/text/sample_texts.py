"""Texts that are hard for tokenizers, on characters that the library and the `regex` module know.

The two come with different versions of Unicode: a character that is a letter for one of them and
nothing for the other would show a difference that is in neither's rules.
"""

import random
import unicodedata
from functools import cache

import regex
import tokenizers as hf

_EVERY = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)]))
_CLASSES = (r"\p{L}", r"\p{N}", r"\s", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Lo}")
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_WORDS = """
the The hug HUG 's 'S 't 'RE 'll 'd 've ſ 'ſ don't we'LL 12 345 6789 ١٢ ² ½ Ⅳ é e\u0301 \u0301
日本語 ภาษาไทย हिन्दी 👍🏽 👩\u200d👩\u200d👧 ... !! -- __ {} ▁ ▁▁ Ġ <0x0A> <s> </s> <unk> <pad>
<|endoftext|> http://a.b/c?d=e &amp; x=[1,2] \ufeff \u200d \ufffd ﬁ Å Å ǅ ŉ ß İ ς Σ
"""
_SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", " \t ", "\u00a0", "\u3000", "\u2028", "\x85"]
_PIECES = [*_WORDS.split(), *_SPACES, "\n \n", " " * 16, "a" * 70]
_SCRIPTS = (
    (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x3040, 0x30FF),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
)  # fmt: skip


@cache
def differing() -> frozenset[str]:
    """The characters that are of another class, or have another normal form, for one of them."""
    different: set[str] = set()
    for expression in _CLASSES:
        found = hf.pre_tokenizers.Split(hf.Regex(expression), "removed")
        rest = set("".join(piece for piece, _ in found.pre_tokenize_str(_EVERY)))
        different |= rest ^ set(regex.sub(expression, "", _EVERY))
    signs = hf.pre_tokenizers.Punctuation("removed")
    rest = set("".join(piece for piece, _ in signs.pre_tokenize_str(_EVERY)))
    different |= rest ^ set(regex.sub(r"[!-/:-@\[-`\{-~]|\p{P}", "", _EVERY))
    for form in _FORMS:
        ours = {c for c in _EVERY if unicodedata.normalize(form, c) != c}
        normalizer = getattr(hf.normalizers, form)()
        different |= {c for c in ours if normalizer.normalize_str(c) == c}
    lower, accents = hf.normalizers.Lowercase(), hf.normalizers.StripAccents()
    marks = set(regex.findall(r"\p{M}", _EVERY))
    different |= {c for c in _EVERY if c.lower() != c and lower.normalize_str(c) == c}
    different |= {c for c in marks if accents.normalize_str(c)}
    return frozenset(different)


@cache
def _common() -> tuple[str, ...]:
    return tuple(c for c in _EVERY if c not in differing() and unicodedata.category(c) != "Co")


def texts(n: int, seed: int = 0) -> list[str]:
    """`n` short texts, the same for the same seed."""
    draw = random.Random(seed)
    return [_text(draw) for _ in range(n)]


def _text(draw: random.Random) -> str:
    parts: list[str] = []
    for _ in range(draw.randint(0, 9)):
        kind = draw.random()
        if kind < 0.4:
            parts.append(draw.choice(_PIECES))
        elif kind < 0.65:
            parts.append(chr(draw.randrange(128)) * draw.choice((1, 1, 1, 2, 3)))
        elif kind < 0.85:
            parts.append(chr(draw.randint(*draw.choice(_SCRIPTS))))
        else:
            parts.append(draw.choice(_common()))
    return "".join(c for c in "".join(parts) if c not in differing())
