"""`mlxgpt sft` as it is typed: every option counts, and every mistake is one line."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typed_commands import Run, refused

from mlxgpt.checkpoint import save_model
from mlxgpt.errors import ConfigError
from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.text import train_bpe
from mlxgpt.train import RunDirectory
from mlxgpt.train.sft import SFTConfig

PLAIN = ("--template", "plain")
FEW = shlex.split("--steps 3 --set workers=1 --max-length 40 --val-fraction 0.2")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "base"
    tokenizer = train_bpe(["ask me what it is and I say so, one two three"] * 5, 280)
    shape = {"n_layer": 2, "n_embd": 16, "n_head": 2, "max_seq_len": 64}
    model = GPT(GPTConfig(**shape, vocab_size=tokenizer.vocab_size))
    init_weights(model, 0)
    save_model(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [
        {"prompt": "ask " * (i % 4 + 1), "completion": "say so " * (i % 5)} for i in range(1, 21)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture
def config_of(
    mlxgpt: Run, base: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SFTConfig]:
    """Return a function from options to the config that comes of them; nothing is trained."""
    seen: list[SFTConfig] = []

    def prepare(config: SFTConfig, progress: object) -> None:
        seen.append(config)
        raise ConfigError("enough")

    monkeypatch.setattr("mlxgpt.train.sft.prepare.prepare_sft", prepare)

    def get(*arguments: str) -> SFTConfig:
        code, _, err = mlxgpt("sft", base, "--data", rows, *arguments)
        assert (code, "enough" in err) == (2, True), err
        return seen[-1]

    return get


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("", "none"),
        ("--pack", "sequence"),
        ("--pack-mode sample", "sample"),
        ("--pack --pack-mode bucket", "bucket"),
        ("--pack-mode bucket --pack", "sequence"),
        ("--pack-mode sample --pack-mode none", "none"),
        ("--pack --pack-mode none", "none"),
    ],
)
def test_the_last_pack_flag_wins(
    config_of: Callable[..., SFTConfig], words: str, mode: str
) -> None:
    assert config_of(*shlex.split(words)).data.pack_mode == mode


OPTIONS: list[tuple[str, str, Any]] = [
    ("--method dora", "tuning.method", "dora"),
    ("--rank 5", "tuning.rank", 5),
    ("--scale 3.5", "tuning.scale", 3.5),
    ("--lora-dropout 0.1", "tuning.dropout", 0.1),
    ("--num-layers 1", "tuning.num_layers", 1),
    ("--target q_proj --target v_proj", "tuning.targets", ("q_proj", "v_proj")),
    ("--epochs 2", "epochs", 2.0),
    ("--steps 9", "steps", 9),
    ("--batch 3", "micro_batch_size", 3),
    ("--grad-accum 2", "grad_accum_steps", 2),
    ("--tokens-per-batch 100", "data.tokens_per_batch", 100),
    ("--max-length 30", "data.max_length", 30),
    ("--overflow drop", "data.overflow", "drop"),
    ("--pack-mode bucket --length-bucket 6", "data.length_bucket", 6),
    ("--template chatml", "data.template", "chatml"),
    ("--no-mask-prompt", "data.mask_prompt", False),
    ("--mask-prompt", "data.mask_prompt", True),
    ("--turns last", "data.turns", "last"),
    ("--bpe-dropout 0.1", "data.bpe_dropout", 0.1),
    ("--optimizer muon", "optimizer.name", "muon"),
    ("--max-lr 1e-3", "optimizer.max_lr", 1e-3),
    ("--lr-schedule linear", "optimizer.lr_schedule", "linear"),
    ("--warmup 4", "optimizer.warmup_steps", 4),
    ("--weight-decay 0.01", "optimizer.weight_decay", 0.01),
    ("--dtype bfloat16", "dtype", "bfloat16"),
    ("--seed 3", "seed", 3),
    ("--val-fraction 0.3", "data.val_fraction", 0.3),
    ("--valid v.jsonl", "data.valid", "v.jsonl"),
    ("--checkpoint-layers", "checkpoint_layers", True),
    ("--eval-every 2", "eval_every", 2),
    ("--save-every 5", "save_every", 5),
    ("--set logits_chunk=7", "logits_chunk", 7),
]


@pytest.mark.parametrize(("words", "name", "value"), OPTIONS, ids=lambda o: str(o))
def test_every_option_counts(
    config_of: Callable[..., SFTConfig], words: str, name: str, value: Any
) -> None:
    def get(config: Any) -> Any:
        for part in name.split("."):
            config = getattr(config, part)
        return config

    assert get(config_of(*shlex.split(words))) == value
    if words != "--mask-prompt":
        assert get(config_of()) != value


def test_a_run_ends_with_an_adapter_and_goes_on_after_a_stop(
    mlxgpt: Run, base: Path, rows: Path
) -> None:
    code, _, err = mlxgpt("sft", base, "--data", rows, *FEW, "--out", "a", "--template", "plain")
    assert code == 0, err
    for word in ("adapter  a", "plot     a/loss.png", "--adapter a", "validate", "train  "):
        assert word in err
    assert Path("a/adapters.safetensors").exists()
    code, _, err = mlxgpt("generate", base, "--adapter", "a", "--prompt", "ask", "--tokens", "3")
    assert code == 0, err
    code, _, err = mlxgpt("sft", "--resume", "a")
    assert code == 0
    assert "nothing to do: all 3 steps of a are done" in err
    config = RunDirectory("a").config(SFTConfig)
    assert (config.steps, config.epochs, config.data.max_length) == (3, None, 40)
    code, _, err = mlxgpt("sft", "-c", "a/run.yaml", "--out", "b")
    assert code == 0, err
    assert (
        Path("b/adapters.safetensors").read_bytes() == Path("a/adapters.safetensors").read_bytes()
    )


def test_mistakes_are_one_line(mlxgpt: Run, base: Path, rows: Path, tmp_path: Path) -> None:
    refused(mlxgpt("sft"), "no model to start from")
    refused(mlxgpt("sft", base), "no rows to learn", "--data")
    refused(mlxgpt("sft", base, "--data", "none.jsonl"), "none.jsonl")
    refused(mlxgpt("sft", "nowhere", "--data", rows), "nowhere")
    refused(mlxgpt("sft", base, "--data", rows, "--length-bucket", "4"), "--pack-mode bucket")
    refused(mlxgpt("sft", base, "--data", rows, "--pack-mode", "packed"), "pack_mode")
    refused(mlxgpt("sft", base, "--data", rows, "--steps", "3", "--epochs", "2"), "steps", "epochs")
    refused(mlxgpt("sft", base, "--data", rows, *PLAIN, "--target", "q_pro"), "q_pro")
    refused(mlxgpt("sft", base, "--data", rows, *PLAIN, "--num-layers", "3"), "3", "2")
    refused(mlxgpt("sft", base, "--data", rows, "--template", "chatml"), "<|im_start|>", "alpaca")
    refused(mlxgpt("sft", base, "--data", rows, "--method", "full", "--rank", "4"), "tuning.rank")
    refused(mlxgpt("sft", "--resume", "nowhere"), "nowhere")
    refused(mlxgpt("sft", base, "--resume", "a"), "BASE cannot be combined with --resume")
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"prompt": "a", "completion": ""}\n')
    refused(mlxgpt("sft", base, "--data", empty), "empty.jsonl")
    assert not Path("runs").exists()
