"""Models with a chat template, and `mlxgpt generate` and `mlxgpt chat` run in this process."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import read_json, save_model, write_json
from mlxgpt.cli.app import main
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.content == 'forbidden' %}{{ raise_exception('not that') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def refused(self) -> str:
        """Check that it was refused as a mistake of the user: one line, and no output."""
        assert (self.code, self.out) == (2, ""), self
        assert self.err.startswith("mlxgpt: error: ")
        assert self.err.count("\n") == 1
        return self.err


class Typed:
    """A terminal at which these lines are typed; an exception in their place is raised."""

    encoding = "utf-8"

    def __init__(self, entries: Sequence[str | type[BaseException]]) -> None:
        self._entries = list(entries)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        if not self._entries:
            return ""
        entry = self._entries.pop(0)
        if not isinstance(entry, str):
            raise entry
        return entry + "\n"


Run = Callable[..., Ran]


@contextmanager
def running(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Give a function that runs a command, with `stdin` as standard input."""

    def run(*arguments: object, stdin: bytes | Typed = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", command, *map(str, arguments)])
        piped = isinstance(stdin, bytes)
        given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8") if piped else stdin
        monkeypatch.setattr(sys, "stdin", given)
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    logger = logging.getLogger("mlxgpt")
    before = logger.handlers[:]
    yield run
    logger.handlers[:] = before


def small_tokenizer() -> Tokenizer:
    return train_bpe(["user assistant system what is it"], 280, special_tokens=SPECIAL)


def writing_only(name: str, random_gpt: Callable[..., GPT]) -> GPT:
    """Return a model that writes one special token again and again."""
    tokenizer = small_tokenizer()
    model = random_gpt(vocab_size=tokenizer.vocab_size, tie_embeddings=False)
    ones = {n: 0 * w if "proj" in n else mx.ones_like(w) for n, w in model.weights().items()}
    chosen = mx.arange(tokenizer.vocab_size)[:, None] == tokenizer.special_tokens[name]
    model.set_weights(ones | {"lm_head.weight": mx.where(chosen, 9 * ones["lm_head.weight"], 0)})
    return model


def save_with_template(folder: Path, network: GPT, tokenizer: Tokenizer) -> Path:
    save_model(folder, network, tokenizer)
    file = folder / "tokenizer_config.json"
    write_json(file, read_json(file) | {"chat_template": TEMPLATE, "eos_token": SPECIAL[0]})
    return folder


def chat_text(*messages: str, system: str | None = None) -> str:
    """Return what the template makes of a user's and the model's words by turns."""
    roles = ["user", "assistant"] * len(messages)
    turns = [] if system is None else [("system", system)]
    turns += list(zip(roles, messages, strict=False))
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return text + "<|im_start|>assistant\n"


def written(network: GPT, tokenizer: Tokenizer, ids: Sequence[int], params: SamplingParams) -> str:
    """Return what the plain loop writes after `ids`, up to the end of a text or of a turn."""
    stop = [tokenizer.special_tokens[name] for name in (SPECIAL[0], SPECIAL[2])]
    tokens = generate(network, ids, params, stop_ids=stop, num_ids=tokenizer.vocab_size)
    return tokenizer.decode([token.token_id for token in tokens], skip_special=True)


def write_lines(file: Path, lines: Sequence[Any]) -> Path:
    """Write objects as lines of JSON; texts as they are."""
    raw = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("".join(line + "\n" for line in raw), encoding="utf-8")
    return file


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]
