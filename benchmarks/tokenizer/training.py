"""Texts -> seconds to learn a vocabulary, beside the peers, and whether they learned the same."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.tokenizer.comparison import Comparison, Row, compare, show_paces
from benchmarks.tokenizer.peers import installed
from benchmarks.tokenizer.race import Encode, Entrant, race
from benchmarks.tokenizer.settings import Settings
from benchmarks.tokenizer.texts import Text
from benchmarks.tokenizer.trainers import TRAINERS, Task, Trainer, agreement
from mlxgpt.text.compiled.tier import compiled_available, warm_up

COMPARISONS = (
    Comparison("mlxgpt", "tokenizers", (12, None, 6)),
    Comparison("mlxgpt", "rustbpe", (4, None, 3)),
    Comparison("mlxgpt", "gigabpe", (1.0, None, 1.0)),
)
NOTE = "gigabpe reads files, by lines; the others cut no document"


def run(texts: Sequence[Text], settings: Settings) -> list[Row]:
    if compiled_available():
        warm_up(print, "training")  # to compile is the other part, cold-start
    rows: list[Row] = []
    trainers, missing = installed(TRAINERS)
    for text in texts:
        documents = text.documents()
        results: dict[str, Any] = {}
        with TemporaryDirectory() as folder:
            file = Path(folder, "text.txt")
            file.write_bytes(text.content.encode())
            task = Task(documents, settings.vocab_size, file, len(set(text.content.encode())))
            entrants = [Entrant(t.name, _runner(t, task, results)) for t in trainers]
            hands = [documents] * settings.training_rounds
            paces = race("training", entrants, hands, warmup=0, by_cpu=settings.by_cpu)
        learned = {t.name: t.learned(results[t.name]) for t in trainers}
        reference = learned.get("tokenizers", learned["mlxgpt"])
        size = f"{settings.vocab_size:,} ids, {text.num_bytes / 1e6:.1f} MB"
        show_paces(
            settings.titled(f"training, {size}"),
            text,
            paces,
            heading="equal merges",
            remarks={name: agreement(tokens, reference) for name, tokens in learned.items()},
            missing=missing,
            note=NOTE,
            keep=settings.keep,
        )
        rows += compare(text, paces, COMPARISONS)
    return rows


def _runner(trainer: Trainer, task: Task, results: dict[str, Any]) -> Encode:
    def train(_: Sequence[str]) -> None:
        results[trainer.name] = trainer.train(task)

    return train
