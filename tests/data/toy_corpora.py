"""Small files for tests, and what is read back from them."""

import json
from pathlib import Path

import pytest

from mlxgpt.data import Corpus, open_corpus
from mlxgpt.errors import DataError


def texts(corpus: Corpus) -> list[str]:
    return [d.text for d in corpus.documents()]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_rows(path: Path, *rows: object) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def fails(path: Path | str, *parts: str, text_field: str = "text") -> None:
    """Check that reading ends in one line that has all `parts`."""
    with pytest.raises(DataError) as caught:
        texts(open_corpus(str(path), text_field=text_field))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def corpus_of(folder: Path, *texts: str) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "rows.jsonl").write_text(rows)
    return open_corpus(folder)
