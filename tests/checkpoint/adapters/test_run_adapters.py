"""What a run of fine-tuning leaves behind: read here and elsewhere, fused, and out to PEFT."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from random_adapters import IDS, TOLERANCE, difference, noise

from mlxgpt.checkpoint import (
    About,
    attach,
    export_directory,
    export_gguf,
    load,
    load_model,
    open_checkpoint,
    outgoing,
    read_adapter,
    save_model,
    write_adapter,
)
from mlxgpt.checkpoint.adapters.base_fingerprint import base_fingerprint
from mlxgpt.checkpoint.adapters.fresh import fresh_adapter, train_only, trained_names
from mlxgpt.checkpoint.adapters.run_adapter import describe_adapter
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT
from mlxgpt.text import train_bpe

Maker = Callable[..., GPT]
SHAPE = {"n_embd": 64, "n_layer": 3, "tie_embeddings": False, "max_seq_len": 32}
METHODS = pytest.mark.parametrize("method", ["lora", "dora"])
TEXT = "the cat sat on the mat; 3 + 4 = 7\n" * 20
ABOUT = About(title="a model")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def run_of(folder: Path, random_gpt: Maker, method: Any, **changes: Any) -> GPT:
    """A base, and beside it a run: settings written at its start, weights later. The network as
    it was at the end."""
    tokenizer = train_bpe([TEXT], 300, special_tokens=["<|endoftext|>", "<|end|>"])
    model = random_gpt(**SHAPE, vocab_size=tokenizer.vocab_size)
    save_model(folder / "base", model, tokenizer)
    settings = {"rank": 4, "scale": 37 / 4, "dropout": 0.1, "num_layers": 2, "targets": None}
    fingerprint = base_fingerprint(model)
    adapter = fresh_adapter(model, method=method, seed=0, **(settings | changes))
    (folder / "run").mkdir()
    describe_adapter(folder / "run", adapter, "owner/base", fingerprint)
    attach(model, adapter)
    trained = dict(tree_flatten(model.trainable_parameters()))
    for name, array in trained.items():
        trained[name] = mx.abs(array) * 1.2 if name.endswith(".m") else moved(name, array)
    model.load_weights(list(trained.items()), strict=False)
    mx.save_safetensors(str(folder / "run" / "adapters.safetensors"), trained)
    return model


def moved(name: str, array: mx.array) -> mx.array:
    return array + noise(name, *array.shape) / 16


@METHODS
def test_the_settings_are_those_of_mlx_lm(random_gpt: Maker, tmp_path: Path, method: str) -> None:
    run_of(tmp_path, random_gpt, method, targets=("v_proj", "mlp.up_proj", "lm_head"))
    raw = json.loads((tmp_path / "run" / "adapter_config.json").read_text())
    fingerprint = raw.pop("base_fingerprint")
    assert fingerprint == base_fingerprint(open_checkpoint(tmp_path / "base"))
    assert raw == {
        "fine_tune_type": method,
        "lora_parameters": {
            "dropout": 0.1,
            "keys": ["lm_head", "mlp.up_proj", "self_attn.v_proj"],
            "rank": 4,
            "scale": 9.25,
        },
        "model": "owner/base",
        "num_layers": 2,
    }


@METHODS
def test_it_computes_what_the_run_computed(random_gpt: Maker, tmp_path: Path, method: str) -> None:
    model = run_of(tmp_path, random_gpt, method)
    plain, _ = load(tmp_path / "base")
    again, _ = load(tmp_path / "base", tmp_path / "run")
    assert mx.array_equal(again(IDS), model(IDS))
    assert difference(again(IDS), plain(IDS)) > 0.1
    # another strength would be another function
    adapter = read_adapter(tmp_path / "run")
    weaker = {path: replace(change, scale=2.0) for path, change in adapter.modules.items()}
    other = load_model(tmp_path / "base")
    attach(other, replace(adapter, modules=weaker))
    assert difference(other(IDS), model(IDS)) > 0.1


@METHODS
def test_mlx_lm_computes_the_same(random_gpt: Maker, tmp_path: Path, method: str) -> None:
    import mlx_lm

    model = run_of(tmp_path, random_gpt, method)
    theirs, _ = mlx_lm.load(str(tmp_path / "base"), adapter_path=str(tmp_path / "run"))
    assert difference(theirs(IDS), model(IDS)) < TOLERANCE


@METHODS
def test_fused_is_not_the_base(random_gpt: Maker, tmp_path: Path, method: str) -> None:
    model = run_of(tmp_path, random_gpt, method)
    base, adapter = open_checkpoint(tmp_path / "base"), read_adapter(tmp_path / "run")
    export_directory(base, tmp_path / "fused", outgoing(base, adapter=adapter), ABOUT)
    fused = load_model(tmp_path / "fused")
    assert difference(fused(IDS), load_model(tmp_path / "base")(IDS)) > 0.1
    assert difference(fused(IDS), model(IDS)) < 1e-3


@METHODS
def test_it_goes_to_peft_and_back(random_gpt: Maker, tmp_path: Path, method: str) -> None:
    """All is square here: the wrong way round would fit, and be another function."""
    model = run_of(tmp_path, random_gpt, method, rank=64, targets=("q_proj", "o_proj"))
    (tmp_path / "run" / "chat_template.jinja").write_text(TEMPLATE)
    adapter = read_adapter(tmp_path / "run")
    assert adapter.modules["model.layers.1.self_attn.q_proj"].a.shape == (64, 64)
    write_adapter(tmp_path / "peft", adapter, "peft")
    back = read_adapter(tmp_path / "peft")
    assert back.chat_template == TEMPLATE
    assert back.base == "owner/base"
    for path, change in adapter.modules.items():
        assert back.modules[path].scale == change.scale == 9.25
        assert mx.array_equal(back.modules[path].a, change.a)
        assert mx.array_equal(back.modules[path].b, change.b)
    network = load_model(tmp_path / "base")
    attach(network, back)
    assert mx.array_equal(network(IDS), model(IDS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@METHODS
@pytest.mark.parametrize("rank", [4, 64])
def test_peft_computes_the_same(random_gpt: Maker, tmp_path: Path, method: str, rank: int) -> None:
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    model = run_of(tmp_path, random_gpt, method, rank=rank, scale=37 / rank)
    write_adapter(tmp_path / "peft", read_adapter(tmp_path / "run"), "peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "peft").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor(IDS.tolist())).logits
    assert difference(mx.array(logits.numpy()), model(IDS)) < TOLERANCE


def test_whole_weights_of_the_last_layers(random_gpt: Maker, tmp_path: Path) -> None:
    import mlx_lm

    tokenizer = train_bpe([TEXT], 300)
    model = random_gpt(**SHAPE, vocab_size=tokenizer.vocab_size)
    save_model(tmp_path / "base", model, tokenizer)
    plain, fingerprint = model(IDS), base_fingerprint(model)
    adapter = train_only(model, trained_names(model.config, 1))
    assert adapter is not None
    describe_adapter(tmp_path, adapter, "owner/base", fingerprint)
    trained = {n: moved(n, w) for n, w in tree_flatten(model.trainable_parameters())}
    model.load_weights(list(trained.items()), strict=False)
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), trained)
    again, _ = load(tmp_path / "base", tmp_path)
    assert mx.array_equal(again(IDS), model(IDS))
    assert difference(again(IDS), plain) > 0.1
    theirs, _ = mlx_lm.load(str(tmp_path / "base"), adapter_path=str(tmp_path))
    assert difference(theirs(IDS), model(IDS)) < TOLERANCE


def test_a_template_beside_it_goes_into_what_is_fused(random_gpt: Maker, tmp_path: Path) -> None:
    run_of(tmp_path, random_gpt, "lora")
    base = open_checkpoint(tmp_path / "base")
    end = base.tokenizer().special_tokens["<|end|>"]
    assert base.chat_template is None
    assert end not in base.stop_ids
    assert read_adapter(tmp_path / "run").chat_template is None
    (tmp_path / "run" / "chat_template.jinja").write_text(TEMPLATE)
    adapter = read_adapter(tmp_path / "run")
    assert adapter.chat_template == TEMPLATE
    export_directory(base, tmp_path / "hf", outgoing(base, adapter=adapter), ABOUT)
    gguf = export_gguf(
        base, tmp_path / "x.gguf", outgoing(base, adapter=adapter, unpacked=True), ABOUT
    )
    for place in (tmp_path / "hf", gguf):
        fused = open_checkpoint(place)
        assert fused.chat_template == TEMPLATE
        assert {end} | base.stop_ids <= fused.stop_ids
    (tmp_path / "run" / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        read_adapter(tmp_path / "run")


PROGRAM = """
import sys
import mlxgpt
import mlx.core as mx
model, _ = mlxgpt.load(sys.argv[1], adapter=sys.argv[2])
mx.save_safetensors(sys.argv[3], {"logits": model(mx.load(sys.argv[4])["ids"])})
"""


@pytest.mark.slow
@METHODS
def test_a_new_process_is_told_nothing_and_gives_the_same_bits(
    random_gpt: Maker, tmp_path: Path, method: str
) -> None:
    model = run_of(tmp_path, random_gpt, method)
    files = [str(tmp_path / name) for name in ("base", "run", "out.safetensors", "ids.safetensors")]
    mx.save_safetensors(files[3], {"ids": IDS})
    subprocess.run([sys.executable, "-c", PROGRAM, *files], check=True, timeout=120)
    logits: Any = mx.load(files[2])
    assert mx.array_equal(logits["logits"], model(IDS))
