"""A folder, or what lies on this machine -> three kinds of text, cut into documents."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from benchmarks.tokenizer import found_text

Kind = Literal["source", "English", "many scripts"]
KINDS: tuple[Kind, ...] = ("source", "English", "many scripts")

DOCUMENT = 20_000
"""Bytes of a document, about."""
PIECE = 2_000
"""Bytes in a row that go into the sample together, or stay out of it."""
SAMPLE = 5
"""One piece of so many is for the vocabulary, which so knows every language of the text."""
ENGLISH = 0.98
"""The share of ASCII characters from which on a file counts as English."""
STRETCH = re.compile(r"[^\n]{0,400}[^\n ]*\n?")
"""What is never cut: a line, or of a longer one so much and up to the next space."""


@dataclass(frozen=True)
class Text:
    """One kind of text to measure on."""

    kind: Kind
    origin: str
    """Where it is from, for the reader of the table."""
    content: str

    @property
    def num_bytes(self) -> int:
        return len(self.content.encode())

    def documents(self) -> list[str]:
        """Return the whole text in documents."""
        return list(cut([self.content], DOCUMENT))

    def sample(self) -> list[str]:
        """Return the pieces that the vocabulary is trained on."""
        return list(islice(cut([self.content], PIECE), 0, None, SAMPLE))

    def hands(self, rounds: int) -> list[list[str]]:
        """Deal the text outside of the sample to `rounds` rounds: no document to two of them."""
        rest = (piece for i, piece in enumerate(cut([self.content], PIECE)) if i % SAMPLE)
        documents = list(cut(rest, DOCUMENT))
        return [documents[i::rounds] for i in range(rounds)]


def three_texts(folder: Path | None, size: int) -> list[Text]:
    """Return source, English and many scripts, each of at most about `size` bytes.

    English and many scripts are the `.txt` files of `folder`, told apart by how much of them is
    ASCII; what is not there is replaced by text found or made here, and its origin says so.
    """
    english, scripts = english_and_others(folder) if folder else ({}, {})
    python = "Python files of this interpreter and of its packages"
    docs = "STAND-IN: docstrings and pages of the installed packages"
    made = "STAND-IN: made-up languages in the scripts of Unicode 3.2"
    number = size // found_text.LANGUAGE_BYTES + 1
    return [
        Text("source", python, clip(found_text.sources(), size)),
        Text("English", *_own_or(english, docs, found_text.prose(), size)),
        Text("many scripts", *_own_or(scripts, made, found_text.made_up_languages(number), size)),
    ]


def _own_or(own: dict[str, str], stand_in: str, parts: Iterable[str], size: int) -> tuple[str, str]:
    return (", ".join(own), clip(own.values(), size)) if own else (stand_in, clip(parts, size))


def english_and_others(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read the `.txt` files: name -> text of the English ones, and the same of all others."""
    english, others = {}, {}
    for path in sorted(folder.glob("*.txt")):
        text = path.read_bytes().decode()
        ascii_only = len(text.encode("ascii", "ignore"))
        (english if ascii_only >= ENGLISH * len(text) else others)[path.name] = text
    return english, others


def clip(parts: Iterable[str], size: int) -> str:
    """Join `parts` up to about `size` bytes."""
    return "".join(islice(cut(parts, PIECE), max(1, size // PIECE)))


def cut(parts: Iterable[str], size: int) -> Iterator[str]:
    """Yield the joined `parts` in pieces that end with the stretch that reaches `size` bytes."""
    held: list[str] = []
    length = 0
    for part in parts:
        for stretch in STRETCH.findall(part):
            held.append(stretch)
            length += len(stretch.encode())
            if length >= size:
                yield "".join(held)
                held, length = [], 0
    if length:
        yield "".join(held)
