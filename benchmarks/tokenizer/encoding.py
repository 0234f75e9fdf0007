"""tokenizer.json and texts -> MB/s of encoding, plain and with BPE-dropout, beside the peers."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.tokenizer.comparison import Comparison, Row, compare, show_paces
from benchmarks.tokenizer.ours import COMPILED, NOT_COMPILED, PLAIN
from benchmarks.tokenizer.peers import PEERS, installed
from benchmarks.tokenizer.race import Entrant, race
from benchmarks.tokenizer.settings import Settings
from benchmarks.tokenizer.texts import Text
from mlxgpt.text.compiled.tier import compiled_available

COMPARISONS = (
    Comparison("mlxgpt, compiled", "tokenizers", (60, 70, 20)),
    Comparison("mlxgpt, compiled", "tokenizers, fast batch"),
    Comparison("mlxgpt, compiled", "tiktoken", (7, 7, 3)),
    Comparison("mlxgpt, compiled", "gigatoken", (1.0, 1.0, 0.75)),
    Comparison("mlxgpt, compiled", "fastokens"),
    Comparison("mlxgpt, dropout 0.1", "tokenizers, dropout 0.1", (28, 36, 10)),
    Comparison("mlxgpt, plain", "tokenizers", (7, 10, 2)),
)


def run(texts: Sequence[Text], file: Path, settings: Settings) -> list[Row]:
    rows: list[Row] = []
    ours = (*COMPILED, *PLAIN) if compiled_available() else PLAIN
    if ours is PLAIN:
        print(NOT_COMPILED)
    found, missing = installed((*ours, *PEERS))
    reference = "tokenizers" if "tokenizers" in {p.name for p in found} else "mlxgpt, plain"
    for text in texts:
        # Opened anew for each text: what a cache holds of the last one would help with the next.
        entrants = [Entrant(p.name, p.open(file), p.exact) for p in found]
        hands = [hand[: settings.hand] for hand in text.hands(settings.rounds + settings.warmup)]
        title = settings.titled("encoding")
        paces = race(
            title,
            entrants,
            hands,
            warmup=settings.warmup,
            reference=reference,
            by_cpu=settings.by_cpu,
        )
        show_paces(
            title,
            text,
            paces,
            heading=f"ids of {reference}",
            remarks={name: pace.ids for name, pace in paces.items()},
            missing=missing,
            keep=settings.keep,
        )
        rows += compare(text, paces, COMPARISONS)
    return rows
