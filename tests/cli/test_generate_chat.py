"""`mlxgpt generate --chat`, `--adapter`, and models that are no directory of ours."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import (
    attach,
    load,
    open_checkpoint,
    read_adapter,
    read_json,
    save_model,
    write_json,
)
from mlxgpt.checkpoint.gguf.writing import write_gguf
from mlxgpt.cli.app import main
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe

Run = Callable[..., tuple[int, str, str]]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def run(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", "generate", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    logger = logging.getLogger("mlxgpt")
    before = logger.handlers[:]
    yield run
    logger.handlers[:] = before


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(["user assistant system what is it"], 280, special_tokens=SPECIAL)


@pytest.fixture(scope="module")
def network(random_gpt: Callable[..., GPT], tokenizer: Tokenizer) -> GPT:
    return random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=64)


@pytest.fixture
def folder(network: GPT, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    save_model(tmp_path / "m", network, tokenizer)
    return tmp_path / "m"


def with_template(folder: Path) -> Path:
    file = folder / "tokenizer_config.json"
    write_json(file, read_json(file) | {"chat_template": TEMPLATE, "eos_token": "<|endoftext|>"})
    return folder


def answer(network: GPT, tokenizer: Tokenizer, text: str, tokens: int = 20) -> str:
    """What the model writes after `text`, in which all special tokens act, up to any of them."""
    params = SamplingParams(temperature=0, max_tokens=tokens)
    stop = [tokenizer.special_tokens[name] for name in (SPECIAL[0], SPECIAL[2])]
    ids = tokenizer.encode(text, "all")
    written = [t.token_id for t in generate(network, ids, params, stop_ids=stop)]
    return tokenizer.decode(written, skip_special=True)


def test_the_answer_alone_is_printed(
    run: Run, folder: Path, network: GPT, tokenizer: Tokenizer
) -> None:
    with_template(folder)
    fixed = ("--temperature", 0, "--tokens", 20)
    asked = "<|im_start|>user\nwhat is it<|im_end|>\n<|im_start|>assistant\n"
    code, out, err = run(folder, "--chat", "-p", "what is it", *fixed)
    assert (code, out) == (0, answer(network, tokenizer, asked) + "\n")
    assert f"[{len(tokenizer.encode(asked, 'all'))} prompt tokens, " in err
    code, out, _ = run(
        folder, "--chat", "-p", "-", "--system", "be it", *fixed, stdin=b"what is it"
    )
    asked = "<|im_start|>system\nbe it<|im_end|>\n" + asked
    assert (code, out) == (0, answer(network, tokenizer, asked) + "\n")


def test_a_template_of_ones_own(
    run: Run, folder: Path, network: GPT, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("Q: {{ messages[-1].content }}\nA:{{ bos_token }}", encoding="utf-8")
    arguments = ("--chat", "--chat-template", file, "--temperature", 0, "--tokens", 9)
    code, out, _ = run(folder, *arguments, "-p", "is it")
    assert (code, out) == (0, answer(network, tokenizer, "Q: is it\nA:<|endoftext|>", 9) + "\n")
    file.write_text("{{ raise_exception('no questions') }}")
    code, out, err = run(folder, *arguments, "-p", "is it")
    assert (code, out) == (2, "")
    assert err.endswith("own.jinja does not take these messages: no questions\n")


def test_an_answer_ends_where_the_template_or_the_tokenizer_ends_a_turn(
    run: Run, folder: Path, random_gpt: Callable[..., GPT], tokenizer: Tokenizer
) -> None:
    model = random_gpt(vocab_size=tokenizer.vocab_size, tie_embeddings=False)
    ones = {
        name: 0 * w if "proj" in name else mx.ones_like(w) for name, w in model.weights().items()
    }
    end = mx.arange(tokenizer.vocab_size)[:, None] == tokenizer.special_tokens["<|im_end|>"]
    model.set_weights(ones | {"lm_head.weight": mx.where(end, ones["lm_head.weight"], 0)})
    save_model(folder, model, tokenizer)  # it writes <|im_end|> and nothing else
    asked = ("-p", "a", "--temperature", 0, "--tokens", 5)
    assert " 5 written" in run(folder, *asked)[2]
    own = ("--chat", "--chat-template", folder / "bare.jinja")
    (folder / "bare.jinja").write_text("{{ messages[-1].content }}")
    assert " 5 written" in run(folder, *asked, *own)[2]
    with_template(folder)
    code, out, err = run(folder, *asked, "--chat")
    assert (code, out) == (0, "\n")
    assert " 1 written" in err
    file = folder / "tokenizer_config.json"
    write_json(file, read_json(file) | {"eos_token": "<|im_end|>"})
    assert " 1 written" in run(folder, *asked, *own)[2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--system", "x"), "--system has no effect without --chat"),
        (("--chat-template", "x"), "--chat-template has no effect without --chat"),
        (("--chat",), "--chat answers a question: give a --prompt"),
        (("--chat", "-p", "a"), "has no chat template: give one with --chat-template FILE"),
        (("--chat", "-p", "a", "--chat-template", "none"), "cannot read none"),
        (("--adapter", "none"), "none"),
    ],
)
def test_what_does_not_fit_is_said(
    arguments: tuple[str, ...], reason: str, run: Run, folder: Path
) -> None:
    code, out, err = run(folder, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err


def test_a_gguf_file_with_its_template(
    run: Run, folder: Path, network: GPT, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "m.gguf"
    weights = network.weights().items()
    write_gguf(
        file, config=network.config, weights=weights, tokenizer=tokenizer, chat_template=TEMPLATE,
        name="m",
    )  # fmt: skip
    assert open_checkpoint(file).chat_template == TEMPLATE
    arguments = ("--chat", "-p", "what is it", "--temperature", 0, "--tokens", 12)
    assert run(file, *arguments)[:2] == run(with_template(folder), *arguments)[:2]


def test_a_prompt_begins_as_the_tokenizer_says(run: Run, folder: Path) -> None:
    fixed = ("--temperature", 0, "--tokens", 5)
    _, without, err = run(folder, "-p", "it", *fixed)
    count = int(err.split("[")[1].split()[0])
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    name = "<|endoftext|>"
    number = next(t["id"] for t in content["added_tokens"] if t["content"] == name)
    text = {"Sequence": {"id": "A", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": name, "type_id": 0}}, text],
        "pair": [text, text],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }  # fmt: skip
    file.write_text(json.dumps(content))
    _, out, err = run(folder, "-p", "it", *fixed)
    assert f"[{count + 1} prompt tokens, " in err
    assert out.startswith("it")
    assert out != without


def test_control_tokens_in_a_prompt_are_text_and_it_is_said(run: Run, folder: Path) -> None:
    _, out, err = run(folder, "-p", "<|im_start|>it", "--tokens", 1)
    assert "note: the prompt holds '<|im_start|>', which is read as plain text; --chat" in err
    assert out.startswith("<|im_start|>it")


def test_an_adapter_is_put_on(run: Run, folder: Path, network: GPT, tmp_path: Path) -> None:
    path = "model.layers.1.mlp.down_proj"
    rows, columns = network.weights()[f"{path}.weight"].shape
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    tensors = {
        f"{path}.lora_a": mx.random.normal((columns, 2), key=mx.random.key(1)),
        f"{path}.lora_b": mx.random.normal((2, rows), key=mx.random.key(2)),
    }
    mx.save_safetensors(str(adapter / "adapters.safetensors"), tensors)
    parameters = {"rank": 2, "scale": 3.0, "dropout": 0.0, "keys": ["mlp.down_proj"]}
    settings = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": parameters}
    write_json(adapter / "adapter_config.json", settings)
    fixed = ("-p", "what", "--temperature", 0, "--tokens", 12)
    changed, tokenizer = load(folder)
    attach(changed, read_adapter(adapter))
    assert isinstance(changed, GPT)
    code, out, _ = run(folder, *fixed, "--adapter", adapter)
    assert (code, out) == (0, "what" + answer(changed, tokenizer, "what", 12) + "\n")
    assert out != run(folder, *fixed)[1]
    code, _, err = run(adapter, *fixed)
    assert code == 2
    assert f"{adapter} is an adapter" in err
    assert "with --adapter" in err
