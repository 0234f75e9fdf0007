"""Bytes per token of text that the tokenizer was not trained on, by vocabulary size."""

from importlib.util import find_spec

from benchmarks.corpora import text
from benchmarks.harness import show
from benchmarks.tokenizer.vocabulary import train_hugging_face
from mlxgpt.text import train_bpe

SIZE = 2_000_000


def main() -> None:
    documents = text(SIZE)
    held_back, seen = documents[::10], [d for i, d in enumerate(documents) if i % 10]
    size = sum(len(d.encode()) for d in held_back)
    rows = []
    for vocab in (512, 1024, 4096):
        ours = train_bpe(seen, vocab)
        row = [f"{vocab:,}", f"{size / sum(len(ours.encode(d)) for d in held_back):.3f}"]
        if find_spec("tokenizers"):
            theirs = train_hugging_face(seen, vocab - 1)  # ours counts the end-of-text token
            row.append(f"{size / sum(len(theirs.encode(d).ids) for d in held_back):.3f}")
        rows.append(row)
    headings = ("vocabulary", "mlxgpt", "tokenizers")[: len(rows[0])]
    show(
        "compression, bytes per token, every tenth document held back",
        headings,
        rows,
        "equal by construction: the merges are the same (tests/text)",
    )
