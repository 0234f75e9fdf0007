"""Models to evaluate, and `mlxgpt eval` run on them in this process."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.checkpoint import read_json, save_model, write_json
from mlxgpt.cli.app import main
from mlxgpt.model import GPT
from mlxgpt.text import train_char

TEXT = "the cat sat on the mat, a naïve cat\n" * 3
SIZE = len(TEXT.encode())


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def facts(self) -> dict[str, Any]:
        """Return the JSON object that it printed."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def refused(self) -> str:
        """Check that it was refused as a mistake of the user: one line, and no output."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("mlxgpt: error: ")
        assert self.err.count("\n") == 1
        return self.err


Run = Callable[..., Ran]


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Give a function that runs the command, with `stdin` as standard input."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", "eval", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    logger = logging.getLogger("mlxgpt")
    before = logger.handlers[:]
    yield run
    logger.handlers[:] = before


def save_plain(path: Path, random_gpt: Callable[..., GPT]) -> Path:
    """Save a model whose tokenizer puts nothing before a text."""
    tokenizer = train_char([TEXT])
    save_model(path, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return path


def put_around(path: Path, *template: str) -> Path:
    """Let the tokenizer of a model put its special token around a text, `$A`."""
    content = read_json(path / "tokenizer.json")
    end = content["added_tokens"][0]
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}}
            if part == "$A"
            else {"SpecialToken": {"id": part, "type_id": 0}}
            for part in template
        ],
        "pair": [],
        "special_tokens": {
            end["content"]: {
                "id": end["content"], "ids": [end["id"]], "tokens": [end["content"]]
            }
        },
    }  # fmt: skip
    write_json(path / "tokenizer.json", content)
    return path
