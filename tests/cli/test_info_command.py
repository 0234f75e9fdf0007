"""`mlxgpt info`: a table for a person, one JSON object for a script, one line for a mistake."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt import seeding
from mlxgpt.checkpoint import Adapter, read_json, save_model, write_adapter, write_json
from mlxgpt.checkpoint.adapters import LowRank
from mlxgpt.cli.app import main
from mlxgpt.config import dump_yaml
from mlxgpt.data import DataConfig
from mlxgpt.model import GPT, GPTConfig
from mlxgpt.text import train_bpe
from mlxgpt.train.config import TrainConfig

Make = Callable[..., GPT]
TEXT = "the cat sat on the mat\n"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[str, str]:
        assert self.code == 0, self.err
        pairs = [line.split("  ", 1) for line in self.out.splitlines()]
        return {name: words.strip() for name, words in pairs}

    @property
    def facts(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    def refused(self) -> str:
        """Check that it was refused as a mistake of the user: one line, and no output."""
        assert (self.code, self.out) == (2, "")
        assert self.err.startswith("mlxgpt: error: ")
        assert self.err.count("\n") == 1
        return self.err


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", "info", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    logger = logging.getLogger("mlxgpt")
    before = logger.handlers[:]
    yield run
    logger.handlers[:] = before


@pytest.fixture
def folder(tmp_path: Path, random_gpt: Make) -> Path:
    path = tmp_path / "model"
    tokenizer = train_bpe([TEXT * 30], 262)
    model = random_gpt(vocab_size=270, rope_theta=5000.0, max_seq_len=64)
    model.set_dtype(mx.bfloat16)
    save_model(path, model, tokenizer)
    return path


def test_a_table_says_what_a_model_is(folder: Path, run: Run) -> None:
    rows = run(folder).rows
    here = rows.pop("this machine")
    assert "fits" in here
    assert rows == {
        "model": str(folder),
        "architecture": "llama, safetensors",
        "layers": "2",
        "width": "32",
        "heads": "4 of 8; 2 for keys and values",
        "MLP width": "96",
        "context": "64 tokens",
        "positions": "rotary, theta 5,000",
        "parameters": "33,376; 24,736 of them outside the embedding, which is the head too",
        "vocabulary": "270 ids",
        "tokenizer": "byte-level BPE; 262 ids",
        "special tokens": "1: bos, eos, pad <|endoftext|> 261",
        "ends a text": "<|endoftext|> 261",
        "chat template": "no",
        "weights": "bfloat16",
        "on disk": "65.2 KiB in 20 tensors",
        "in memory": "65.2 KiB as stored, on a GPU; 130.4 KiB in float32, on a CPU",
        "cache": "128 bytes a token, 8.0 KiB for the whole context, in bfloat16",
    }


def test_json_has_the_same_facts_as_plain_numbers(folder: Path, run: Run) -> None:
    facts = run(folder, "--json").facts
    assert (facts["kind"], facts["format"], facts["run_by"]) == ("model", "safetensors", "mlxgpt")
    assert (facts["model"], facts["path"]) == (str(folder), str(folder))
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_kv_head": 2, "head_dim": 8}
    sizes |= {"intermediate_size": 96, "context": 64, "vocab_size": 270, "rope_theta": 5000.0}
    sizes |= {"parameters": 33376, "parameters_outside_embedding": 24736, "tensors": 20}
    sizes |= {"bytes_on_disk": 66752, "bytes_in_memory": 66752, "bytes_in_memory_float32": 133504}
    sizes |= {"kv_bytes_per_token": 128, "kv_bytes_context": 8192}
    sizes |= {"kv_bytes_per_token_float32": 256, "kv_bytes_context_float32": 16384}
    assert {name: facts[name] for name in sizes} == sizes
    assert facts["stop_tokens"] == [{"id": 261, "text": "<|endoftext|>"}]
    assert facts["tokenizer"]["vocab_size"] == 262
    assert facts["tokenizer"]["named_tokens"]["bos_token"] == {"id": 261, "text": "<|endoftext|>"}
    assert facts["training"] is facts["tokenizer_problem"] is facts["rope_scaling"] is None
    assert facts["here"]["fits"]


def test_what_a_family_has_of_its_own_is_told(folder: Path, run: Run) -> None:
    file = folder / "config.json"
    plain = read_json(file)
    stretched = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    stretched |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 7.0}
    write_json(file, plain | {"rope_parameters": stretched, "tie_word_embeddings": True})
    assert run(folder).rows["positions"] == "rotary, theta 7; llama3 by 8 from 8 tokens"
    scaling = run(folder, "--json").facts["rope_scaling"]
    assert (scaling["rope_type"], scaling["factor"]) == ("llama3", 8.0)
    write_json(file, plain | {"model_type": "mistral", "sliding_window": 16})
    assert run(folder).rows["window"] == "16 tokens in all layers"
    facts = run(folder, "--json").facts
    assert (facts["sliding_window"], facts["layers_with_window"]) == (16, 2)
    assert facts["kv_bytes_context"] == 128 * 16
    write_json(file, plain | {"model_type": "smollm3", "no_rope_layers": [1, 0]})
    assert run(folder).rows["positions"] == "rotary, theta 5,000; none in 1 layer"


def test_a_chat_template_and_more_ends_are_told(folder: Path, run: Run) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    write_json(folder / "config.json", read_json(folder / "config.json") | {"eos_token_id": 0})
    write_json(folder / "generation_config.json", {"eos_token_id": [0, 266]})
    rows = run(folder).rows
    assert rows["chat template"] == "yes"
    assert rows["ends a text"] == "! 0, <|endoftext|> 261, id 266"


def test_a_run_tells_of_its_training(folder: Path, run: Run) -> None:
    config = TrainConfig(data=DataConfig(corpus="books"), model=GPTConfig(), steps=40)
    (folder / "run.yaml").write_text(dump_yaml(config))
    metrics = [{"step": 10, "loss": 3.0}, {"step": 20, "val_loss": 2.5, "bits_per_byte": 1.25}]
    metrics.append({"step": 30, "loss": 2.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    rows = run(folder).rows
    assert rows["model"] == f"{folder}, a run"
    assert rows["trained on"] == "books"
    tokens = 30 * config.tokens_per_step
    assert rows["steps"] == f"30 of 40, {tokens:,} tokens; {config.optimizer.name}"
    assert rows["loss"] == "training 2.0000, validation 2.5000, 1.2500 bits per byte"
    facts = run(folder, "--json").facts
    assert facts["kind"] == "run"
    wanted = {"steps_done": 30, "steps_wanted": 40, "val_loss": 2.5, "bits_per_byte": 1.25}
    assert {name: facts["training"][name] for name in wanted} == wanted
    (folder / "run.yaml").write_text(dump_yaml(replace(config, steps=30)))
    assert run(folder).rows["steps"].startswith(f"30, {tokens:,} tokens")
    (folder / "run.yaml").write_text("steps: [")
    assert "run.yaml is damaged" in run(folder).refused()


def test_a_model_without_its_tokenizer_is_still_told_of(folder: Path, run: Run) -> None:
    train_bpe([TEXT * 30, "several other words\n" * 30], 280).save(folder)
    assert "more ids than the model (270): they do not belong" in run(folder).rows["tokenizer"]
    (folder / "tokenizer.json").write_text("{")
    assert "is not complete JSON" in run(folder).rows["tokenizer"]
    (folder / "tokenizer.json").unlink()
    rows = run(folder).rows
    assert rows["tokenizer"] == f"none: the directory {folder} holds no tokenizer.json"
    assert rows["ends a text"] == "id 261"
    assert "special tokens" not in rows


def test_a_foreign_model_says_who_runs_it(folder: Path, run: Run) -> None:
    file = folder / "config.json"
    foreign = read_json(file) | {"model_type": "mixtral", "num_local_experts": 4}
    write_json(file, foreign | {"num_experts_per_tok": 2})
    rows = run(folder).rows
    assert rows["architecture"] == "mixtral, safetensors; run by mlx-lm"
    assert rows["MLP width"] == "96; 4 experts, 2 for a token"
    write_json(file, foreign | {"model_type": "xyz"})
    words = "xyz, safetensors; cannot be run here: mlxgpt does not know it, nor does mlx-lm"
    assert run(folder).rows["architecture"] == words
    assert run(folder, "--json").facts["run_by"] is None


def test_a_foreign_gguf_is_told_of(tmp_path: Path, run: Run) -> None:
    gguf: Any = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "phi3")
    writer.add_tensor("token_embd.weight", np.ones((40, 32), np.float16))
    writer.add_tensor("blk.0.ffn_up.weight", np.ones((10, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    rows = run(tmp_path / "a.gguf").rows
    assert rows["architecture"].startswith("phi3, GGUF; cannot be run here")
    assert rows["parameters"] == "1,600; 320 of them outside the embedding"
    assert rows["on disk"] == "3.1 KiB in 2 tensors: F16"
    assert rows["tokenizer"].startswith("none: ")


def test_an_adapter_is_told_of(tmp_path: Path, run: Run) -> None:
    def noise(name: str, *shape: int) -> mx.array:
        return mx.random.normal(shape, key=seeding.key(0, f"test/{name}"))

    modules = {
        f"model.layers.{i}.self_attn.{part}_proj": LowRank(
            a=noise(f"{i}{part}a", 32, 4), b=noise(f"{i}{part}b", 4, 16), scale=2.5
        )
        for i in (1, 2, 3)
        for part in "qv"
    }
    adapter = Adapter(fine_tune_type="lora", modules=modules)
    for form in ("mlx-lm", "peft"):
        path = tmp_path / form
        write_adapter(path, adapter, form, base="org/base")
        rows = run(path).rows
        shown = "PEFT" if form == "peft" else form
        assert rows.pop("adapter") == f"{path} ({shown}'s form)"
        assert rows == {
            "kind": "LoRA",
            "base": "org/base",
            "rank": "4",
            "scale": "2.5",
            "modules": "q_proj, v_proj in 3 layers",
            "parameters": "1,152 in 6 matrices",
            "on disk": "4.5 KiB",
        }
        facts = run(path, "--json").facts
        assert (facts["kind"], facts["ranks"], facts["scales"]) == ("adapter", {"4": 6}, [2.5])
        assert (facts["form"], facts["layers"], facts["parameters"]) == (shown, 3, 1152)
    (tmp_path / "peft" / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors" in run(tmp_path / "peft").refused()


def test_wrong_inputs_are_one_line(folder: Path, tmp_path: Path, run: Run) -> None:
    assert "does not exist" in run(tmp_path / "nowhere").refused()
    (tmp_path / "notes.txt").write_text("hello")
    assert "notes.txt" in run(tmp_path / "notes.txt").refused()
    (tmp_path / "tok").mkdir()
    (folder / "tokenizer.json").rename(tmp_path / "tok" / "tokenizer.json")
    message = run(tmp_path / "tok").refused()
    assert "holds a tokenizer and no model; for that: mlxgpt tokenizer info" in message
    index = folder / "model.safetensors.index.json"
    half = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    write_json(index, {"weight_map": half})
    (folder / "model.safetensors").rename(folder / half["a"])
    assert half["b"] in run(folder).refused()
