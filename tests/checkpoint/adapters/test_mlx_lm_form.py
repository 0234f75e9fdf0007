"""Adapters in mlx-lm's form: theirs is read here, ours is read there, to the same logits."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from random_adapters import (
    ALL,
    IDS,
    QUERIES,
    TOLERANCE,
    difference,
    noise,
    paths,
    random_adapter,
    random_change,
)

from mlxgpt.checkpoint import (
    Adapter,
    attach,
    load_model,
    read_adapter,
    save_model,
    write_adapter,
)
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import train_bpe

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
mlx_lm = pytest.importorskip("mlx_lm")

Maker = Callable[..., GPT]
WIDE = {"n_embd": 64, "n_head": 4, "n_kv_head": 2, "n_layer": 3, "tie_embeddings": False}
METHODS = pytest.mark.parametrize("kind", ["lora", "dora"])
BASES = pytest.mark.parametrize("bits", [None, 4], ids=["float", "4 bits"])


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def saved(directory: Path, random_gpt: Maker, **fields: Any) -> GPT:
    """A model directory, and the model that is in it."""
    tokenizer = train_bpe(["the cat sat on the mat; 3 + 4 = 7\n" * 20], 300)
    model = random_gpt(**{**WIDE, **fields, "vocab_size": tokenizer.vocab_size})
    save_model(directory, model, tokenizer)
    return model


def their_network(directory: Path, bits: int | None) -> Any:
    from mlx_lm.utils import load_model as load_theirs

    network, _ = load_theirs(directory)
    if bits is not None:
        nn.quantize(network, 32, bits)
    return network


def our_network(model: GPT, bits: int | None) -> GPT:
    if bits is not None:
        names = [n.removesuffix(".weight") for n, w in model.weights().items() if w.ndim == 2]
        quantize_modules(model, dict.fromkeys(names, Quantization(bits=bits, group_size=32)))
    return model


SETTINGS: dict[str, dict[str, Any]] = {
    "last two layers": {"num_layers": 2, "keys": list(QUERIES)},
    "all layers, keys by default": {"num_layers": -1},
    "only the last, with the head": {"num_layers": 1, "keys": ["mlp.down_proj", "lm_head"]},
    "more layers than there are": {"num_layers": 16, "keys": ["self_attn.o_proj"]},
}


@METHODS
@BASES
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_what_their_tuner_makes_is_read(
    settings: dict[str, Any], bits: int | None, kind: str, tmp_path: Path, random_gpt: Maker
) -> None:
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model = saved(tmp_path / "base", random_gpt)
    theirs = their_network(tmp_path / "base", bits)
    theirs.freeze()
    parameters = {"rank": 4, "scale": 9.25, "dropout": 0.05}
    if "keys" in settings:
        parameters |= {"keys": settings["keys"]}
    linear_to_lora_layers(theirs, settings["num_layers"], parameters, use_dora=kind == "dora")
    for name, w in tree_flatten(theirs.trainable_parameters()):
        new = mx.abs(w) + 1 if name.endswith(".m") else noise(name, *w.shape) / 16
        theirs.load_weights([(name, new)], strict=False)
    (tmp_path / "adapter").mkdir()
    config = {
        "fine_tune_type": kind,
        "num_layers": settings["num_layers"],
        "lora_parameters": parameters,
        "model": "some/base",
        "learning_rate": 1e-5,
    }
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    mx.save_safetensors(
        str(tmp_path / "adapter" / "adapters.safetensors"),
        dict(tree_flatten(theirs.trainable_parameters())),
    )
    adapter = read_adapter(tmp_path / "adapter")
    assert (adapter.base, adapter.dropout, adapter.rank) == ("some/base", 0.05, 4)
    ours = our_network(model, bits)
    base = ours(IDS)
    attach(ours, adapter)
    theirs.eval()  # without dropout
    assert difference(ours(IDS), theirs(IDS)) < TOLERANCE
    assert difference(ours(IDS), base) > 0.1
    # once more around, with the same settings
    write_adapter(tmp_path / "again", adapter, "mlx-lm")
    again = json.loads((tmp_path / "again" / "adapter_config.json").read_text())
    assert again["num_layers"] == settings["num_layers"]
    assert load_and_compare(tmp_path / "base", tmp_path / "again", bits, theirs) == 0


def load_and_compare(base: Path, adapter: Path, bits: int | None, other: Any) -> float:
    """The difference of `other` and of their network with the adapter loaded by them."""
    from mlx_lm.tuner.utils import load_adapters

    network = load_adapters(their_network(base, bits), str(adapter))
    network.eval()
    return difference(network(IDS), other(IDS))


@METHODS
@BASES
def test_ours_opens_there(bits: int | None, kind: str, tmp_path: Path, random_gpt: Maker) -> None:
    model = saved(tmp_path / "base", random_gpt)
    modules = [*paths([0, 2], QUERIES), *paths([1], ALL), "lm_head"]
    adapter = random_adapter(model.config, modules, scale=2.3, dora=kind == "dora")
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm", base="some/base")
    ours = our_network(model, bits)
    attach(ours, adapter)
    assert load_and_compare(tmp_path / "base", tmp_path / "adapter", bits, ours) < TOLERANCE


def test_one_rank_and_one_scale_stand_for_many(tmp_path: Path, random_gpt: Maker) -> None:
    model = saved(tmp_path / "base", random_gpt)
    changes = {
        path: random_change(model.config, path, rank=2 + i % 3, scale=[1.5, 0.0, 4.7, 1.5][i % 4])
        for i, path in enumerate(paths([0, 1, 2], ALL))
    }
    adapter = Adapter(fine_tune_type="lora", modules=changes)
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["lora_parameters"]["rank"] == 4
    assert config["lora_parameters"]["scale"] == 1.5
    attach(model, adapter)
    assert load_and_compare(tmp_path / "base", tmp_path / "adapter", None, model) < TOLERANCE


def test_a_tied_embedding_goes_both_ways(tmp_path: Path, random_gpt: Maker) -> None:
    model = saved(tmp_path / "base", random_gpt, tie_embeddings=True)
    adapter = random_adapter(model.config, ["model.embed_tokens", *paths([1], QUERIES)])
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm")
    attach(model, read_adapter(tmp_path / "adapter"))
    assert load_and_compare(tmp_path / "base", tmp_path / "adapter", None, model) < TOLERANCE


@METHODS
@pytest.mark.slow
def test_their_load_and_their_fuse_take_ours(
    kind: str, tmp_path: Path, random_gpt: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlx_lm.fuse import main

    model = saved(tmp_path / "base", random_gpt)
    adapter = random_adapter(model.config, paths([1, 2], ALL), dora=kind == "dora")
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm")
    attach(model, adapter)
    theirs, _ = mlx_lm.load(str(tmp_path / "base"), adapter_path=str(tmp_path / "adapter"))
    assert difference(theirs(IDS), model(IDS)) < TOLERANCE
    places = {"model": "base", "adapter-path": "adapter", "save-path": "fused"}
    given = [f"--{name}={tmp_path / place}" for name, place in places.items()]
    monkeypatch.setattr(sys, "argv", ["mlx_lm.fuse", *given])
    main()
    fused = load_model(tmp_path / "fused")
    assert difference(fused(IDS), model(IDS)) < 1e-3


def test_a_full_fine_tuning_is_read_and_written(tmp_path: Path, random_gpt: Maker) -> None:
    from mlx_lm.tuner.utils import load_adapters

    model, other = saved(tmp_path / "base", random_gpt), random_gpt(seed=1, **WIDE)
    folder = tmp_path / "adapter"
    folder.mkdir()
    last = {n: w for n, w in other.weights().items() if n.startswith(("model.layers.2.",))}
    mx.save_safetensors(str(folder / "adapters.safetensors"), last)
    config = {"fine_tune_type": "full", "num_layers": 1, "lora_parameters": None}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    adapter = read_adapter(folder)
    attach(model, adapter)
    write_adapter(tmp_path / "again", adapter, "mlx-lm")
    write_adapter(tmp_path / "listed", replace(adapter, targets=None), "mlx-lm")
    for place in ("adapter", "again", "listed"):
        theirs = load_adapters(their_network(tmp_path / "base", None), str(tmp_path / place))
        assert difference(theirs(IDS), model(IDS)) < TOLERANCE
        ours = load_model(tmp_path / "base")
        attach(ours, read_adapter(tmp_path / place))
        assert difference(ours(IDS), model(IDS)) == 0
    with pytest.raises(CheckpointError, match="whole weights"):
        write_adapter(tmp_path / "peft", adapter, "peft")
    # settings of two layers, weights of one
    config["num_layers"] = 2
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"missing: 'model\.layers\.1\."):
        attach(load_model(tmp_path / "base"), read_adapter(folder))
