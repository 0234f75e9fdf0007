"""Corpora -> the first megabytes of their texts, in groups that are worth telling apart."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlxgpt.cli.tokenizer.arguments import short_names

if TYPE_CHECKING:
    from mlxgpt.data import Corpus

_MOST_KINDS = 7
_TENTHS_FROM = 30
"""Documents from which on tenths of them say something."""
_PACKED = {".gz", ".zst", ".zstd"}


@dataclass(frozen=True)
class Excerpt:
    """Some texts, the same for every tokenizer that is measured on them."""

    texts: tuple[tuple[str, str], ...]
    """(group, text)."""
    grouped_by: str | None
    """What the groups are, in words; None if there is but one."""
    is_cut: bool
    """Whether there is more in the corpora."""

    @property
    def num_bytes(self) -> int:
        return sum(_size(text) for _, text in self.texts)


def take_excerpt(corpora: "Sequence[Corpus]", most_bytes: int) -> Excerpt:
    """Take documents from the beginning; the last one is cut before a character.

    Several corpora share the bytes equally. The groups are these corpora, or else the kinds of
    file, or else the tenths of the documents by their length.
    """
    taken = [_Taken(corpus, most_bytes // len(corpora)) for corpus in corpora]
    texts = [item for one in taken for item in one.texts]
    is_cut = any(one.is_cut for one in taken)
    if len(corpora) > 1:
        names = short_names([Path(corpus.name) for corpus in corpora])
        names = [name for name, one in zip(names, taken, strict=True) for _ in one.texts]
        return Excerpt(_paired(names, texts), "corpus", is_cut)
    kinds = _common([kind for kind, _ in texts])
    if len(set(kinds)) > 1:
        return Excerpt(_paired(kinds, texts), "kind of file", is_cut)
    if len(texts) >= _TENTHS_FROM:
        texts.sort(key=lambda item: _size(item[1]))
        tenths = [f"{10 * i // len(texts) + 1}" for i in range(len(texts))]
        return Excerpt(_paired(tenths, texts), "tenth of the documents, short to long", is_cut)
    return Excerpt(_paired([""] * len(texts), texts), None, is_cut)


class _Taken:
    """The first `most_bytes` of a corpus as pairs of (kind of file, text)."""

    def __init__(self, corpus: "Corpus", most_bytes: int) -> None:
        self.texts: list[tuple[str, str]] = []
        self.is_cut = False
        left = most_bytes
        for kind, text in _documents(corpus):
            encoded = text.encode("utf-8", "surrogatepass")
            if left <= 0 or len(encoded) > left:
                self.is_cut = True
                text = encoded[: max(0, left)].decode("utf-8", "ignore")
            if text:
                self.texts.append((kind, text))
            left -= len(encoded)
            if self.is_cut:
                break


def _documents(corpus: "Corpus") -> Iterator[tuple[str, str]]:
    for source in corpus.sources:
        names = [s for s in Path(source.path).suffixes if s.lower() not in _PACKED]
        kind = names[-1].lower() if names else "no suffix"
        for document in dataclasses.replace(corpus, sources=(source,)).documents():
            yield kind, document.text


def _common(kinds: list[str]) -> list[str]:
    """Replace the rarer kinds by `other`."""
    known = {kind for kind, _ in Counter(kinds).most_common(_MOST_KINDS)}
    return [kind if kind in known else "other" for kind in kinds]


def _paired(groups: list[str], texts: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((group, text) for group, (_, text) in zip(groups, texts, strict=True))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
