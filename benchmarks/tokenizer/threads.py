"""Texts -> MB/s of the compiled tier with one thread and with two.

SHA-256 of the same documents, which lets Python go while it works, as the kernels do, shows in the
same rounds what two threads are worth on this machine at this moment.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.tokenizer.comparison import Comparison, Row, compare, show_paces
from benchmarks.tokenizer.ours import NOT_COMPILED, load_compiled
from benchmarks.tokenizer.race import Encode, Entrant, race
from benchmarks.tokenizer.settings import Settings
from benchmarks.tokenizer.texts import Text
from mlxgpt.text.compiled.tier import compiled_available

COMPARISONS = (
    Comparison("two threads", "one thread", (1.6, 1.6, 1.6)),
    Comparison("SHA-256, two threads", "SHA-256, one thread"),
)

TIMES = 8
"""So often is a document hashed at once: as long as it takes to encode, about."""


def run(texts: Sequence[Text], file: Path, settings: Settings) -> list[Row]:
    if not compiled_available():
        print(NOT_COMPILED)
        return []
    rows: list[Row] = []
    for text in texts:
        alone, shared = load_compiled(file), load_compiled(file)
        with ThreadPoolExecutor(2) as pool:
            entrants = [
                Entrant("one thread", _by_one(alone.encode_array)),
                Entrant("two threads", _by_two(shared.encode_array, pool)),
                Entrant("SHA-256, one thread", _by_one(_digest), exact=False),
                Entrant("SHA-256, two threads", _by_two(_digest, pool), exact=False),
            ]
            # Fewer and longer rounds than of encoding: threads take turns for milliseconds.
            hands = text.hands(settings.rounds // 2 + settings.warmup)
            paces = race("threads", entrants, hands, warmup=settings.warmup, reference="one thread")
        show_paces(
            "mlxgpt, compiled, by threads",
            text,
            paces,
            heading="ids",
            remarks={name: pace.ids for name, pace in paces.items()},
            threads=2,
            keep=settings.keep,
        )
        rows += compare(text, paces, COMPARISONS)
    return rows


def _digest(document: str) -> bytes:
    return sha256(document.encode() * TIMES).digest()


def _by_one(work: Callable[[str], Any]) -> Encode:
    return lambda documents: [work(document) for document in documents]


def _by_two(work: Callable[[str], Any], pool: ThreadPoolExecutor) -> Encode:
    """Give each thread every other document, and put the results in order again."""

    def both(documents: Sequence[str]) -> list[Any]:
        results: list[Any] = [None] * len(documents)
        halves = (documents[::2], documents[1::2])
        jobs = [pool.submit(_by_one(work), half) for half in halves]
        results[::2], results[1::2] = (job.result() for job in jobs)
        return results

    return both
