"""Text to measure on: the built-in Python corpus, which is always there, or a file of one's own."""

import os
from pathlib import Path

from mlxgpt.data import open_corpus


def text(size: int) -> list[str]:
    """Return documents of about `size` bytes: of $MLXGPT_BENCH_TEXT if set, else the library's."""
    own = os.environ.get("MLXGPT_BENCH_TEXT")
    corpus = open_corpus(Path(own) if own else "python")
    documents, total = [], 0
    for document in corpus.documents():
        documents.append(document.text)
        total += len(document.text.encode())
        if total >= size:
            break
    return documents
