"""`mlxgpt data` in this process, on a tiny base that knows ChatML."""

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mlxgpt.checkpoint import save_model
from mlxgpt.cli import app as app_module
from mlxgpt.cli.data import app
from mlxgpt.errors import MLXGPTError
from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.text import END_OF_TEXT, train_bpe
from mlxgpt.text.templates import builtin_template

START, END = "<|im_start|>", "<|im_end|>"
CHAT = [{"role": "user", "content": "ask me"}, {"role": "assistant", "content": "say\nso"}]


def make_base(folder: Path, *, context: int = 256, template: bool = True) -> Path:
    """Write a base into `folder`."""
    specials = [END_OF_TEXT, START, END]
    tokenizer = train_bpe(["ask me what it is and I say so"] * 3, 280, special_tokens=specials)
    size = tokenizer.vocab_size
    model = GPT(GPTConfig(n_layer=1, n_embd=8, n_head=1, max_seq_len=context, vocab_size=size))
    init_weights(model, 0)
    save_model(folder, model, tokenizer)
    if template:
        source = builtin_template("chatml")
        (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    return folder


def write_rows(file: Path, *rows: Any) -> Path:
    """Write a `.jsonl` file."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def run(*arguments: object, env: dict[str, str] | None = None) -> str:
    """Return what the command printed; an error of the user is raised."""
    result = CliRunner(env=env).invoke(app, list(map(str, arguments)))
    if result.exception is not None:
        raise result.exception
    return result.stdout


def refusal(*arguments: object) -> str:
    """Return the one line with which the command refuses its arguments."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, SystemExit):
        assert result.exit_code == 2, "as typer refuses"
        return result.stderr
    assert isinstance(result.exception, MLXGPTError | OSError), result.exception
    assert result.stdout == ""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        assert app_module._refuse(str(result.exception)) == 2
    [line] = told.getvalue().splitlines()
    assert line.isprintable()
    return line.removeprefix("mlxgpt: error: ")


def hold(*words: str, within: str | Sequence[str]) -> None:
    """Check that all the words are there."""
    for word in words:
        assert word in within, (word, within)


def interrupted(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """Check what a Ctrl-C does while the rows are being read."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlxgpt.cli.data.opened_rows.OpenedRows.load", stop)
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert (result.exit_code, result.stderr.strip()) == (130, "mlxgpt: interrupted")
