"""This machine -> source, prose and made-up languages, where nobody brought a text to measure on.

Everything is in a fixed order: the same machine gives the same text.
"""

import random
import re
import sysconfig
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LARGEST_FILE = 250_000
"""Bytes; a larger source file is mostly a table that a program wrote."""
DOCSTRING = re.compile(r'"""(.{200,}?)"""', re.DOTALL)

NOT_SCRIPTS = {
    "MODIFIER",
    "COMBINING",
    "FULLWIDTH",
    "HALFWIDTH",
    "MATHEMATICAL",
    "SCRIPT",
    "DOUBLE",
}
NO_SPACES = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI"}
LANGUAGE_BYTES, LANGUAGE_WORDS = 15_000, 600


def sources() -> Iterator[str]:
    """Yield the Python files of the standard library and of the installed packages, shuffled."""
    yield from _files([".py"])


def prose() -> Iterator[str]:
    """Yield the paragraphs of the installed packages' pages and docstrings, each of them once."""
    seen: set[str] = set()
    for text in _files([".md", ".rst", ".txt", "METADATA", ".py"]):
        is_code = "import " in text and '"""' in text
        for part in DOCSTRING.findall(text) if is_code else [text]:
            for paragraph in re.split(r"\n\s*\n", part):
                words = paragraph.split()
                key = " ".join(words)
                letters = sum(c.isalpha() or c == " " for c in paragraph)
                if len(words) >= 12 and letters > 0.85 * len(paragraph) and key not in seen:
                    seen.add(key)
                    yield paragraph.strip("\n") + "\n\n"


def made_up_languages(number: int) -> Iterator[str]:
    """Yield texts of `number` languages, each with 600 random words in the letters of one script.

    Letters and words follow Zipf's law. Only characters of Unicode 3.2 are in them, which every
    library knows, however old its table is.
    """
    scripts = list(_scripts().items())
    random_numbers = np.random.default_rng(0)
    for i in range(number):
        name, letters = scripts[i % len(scripts)]
        own = random_numbers.permutation(np.array(letters))[: 3000 if name == "CJK" else 60]
        lengths = 1 + random_numbers.poisson(1 if name in NO_SPACES else 4, LANGUAGE_WORDS)
        words = ["".join(own[_zipf(random_numbers, len(own), n)]) for n in lengths]
        gap = "" if name in NO_SPACES else " "
        lines, held = [], 0
        while held < LANGUAGE_BYTES:
            chosen = _zipf(random_numbers, len(words), int(random_numbers.integers(4, 60)))
            lines.append(gap.join(words[k] for k in chosen) + ".\n")
            held += len(lines[-1].encode())
        yield "".join(lines)


def _files(endings: list[str]) -> Iterator[str]:
    paths = sysconfig.get_paths()
    library, packages = Path(paths["stdlib"]), Path(paths["purelib"])
    found = {p for p in library.rglob("*") if "site-packages" not in p.relative_to(library).parts}
    chosen = sorted(p for p in found | set(packages.rglob("*")) if p.name.endswith(tuple(endings)))
    random.Random(0).shuffle(chosen)
    for path in chosen:
        try:
            if 0 < path.stat().st_size <= LARGEST_FILE:
                yield path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):  # not ours to mend: test files of other encodings
            continue


def _scripts() -> dict[str, list[str]]:
    """Return the letters and marks of each script that has twenty or more."""
    old = unicodedata.ucd_3_2_0
    scripts = defaultdict(list)
    for code in [*range(0x41, 0xD7A4), *range(0x10300, 0x10450)]:
        character = chr(code)
        if old.category(character)[0] in "LM" and not old.decomposition(character):
            scripts[old.name(character, "?").split()[0].split("-")[0]].append(character)
    return {k: v for k, v in scripts.items() if len(v) >= 20 and k not in NOT_SCRIPTS}


def _zipf(random_numbers: np.random.Generator, number: int, size: int) -> np.ndarray:
    """Draw `size` indices below `number`, the k-th with a probability near 1 / k."""
    return (number ** random_numbers.random(size)).astype(np.int64) - 1
