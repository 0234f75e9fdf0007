"""Adapters in PEFT's form: what peft saves is read here, ours is read there, to the same logits."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from random_adapters import (
    ALL,
    IDS,
    QUERIES,
    TOLERANCE,
    difference,
    noise,
    paths,
    plainly,
    random_adapter,
    random_change,
)

from mlxgpt.checkpoint import Adapter, attach, load_model, read_adapter, save_model, write_adapter
from mlxgpt.checkpoint.adapters import check_fit
from mlxgpt.errors import CheckpointError, MLXGPTWarning
from mlxgpt.model import GPT
from mlxgpt.text import train_char

Maker = Callable[..., GPT]
# 32 wide: q_proj and o_proj are square, so that an exchange of the two matrices, or at full rank
# a missing transposition, would go unnoticed by their shapes
SHAPE = {"n_embd": 32, "n_head": 4, "n_kv_head": 2, "n_layer": 3, "tie_embeddings": False}


def written(directory: Path, random_gpt: Maker, **fields: Any) -> GPT:
    tokenizer = train_char(["the cat"])
    model = random_gpt(**{**SHAPE, **fields, "vocab_size": tokenizer.vocab_size})
    save_model(directory, model, tokenizer)
    return model


def their_base(directory: Path) -> Any:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM.from_pretrained(directory).eval()


def their_logits(model: Any) -> mx.array:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return mx.array(model(torch.tensor(IDS.tolist())).logits.float().numpy())


SETTINGS: dict[str, dict[str, Any]] = {
    "square layers": {"r": 8, "lora_alpha": 37, "target_modules": ["q_proj", "o_proj"]},
    "square of full rank": {"r": 32, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"]},
    "grouped": {"r": 4, "lora_alpha": 16, "target_modules": ["k_proj", "v_proj", "down_proj"]},
    "rank-stabilized": {"r": 4, "lora_alpha": 3, "use_rslora": True, "target_modules": ["q_proj"]},
    "DoRA": {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": "all-linear"},
    "all linear": {"r": 2, "lora_alpha": 8, "target_modules": "all-linear"},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj", "up_proj"],
        "rank_pattern": {"up_proj": 2, r"layers\.[12]\.self_attn\.q_proj": 8},
        "alpha_pattern": {"v_proj": 40, "layers.0.self_attn.q_proj": 1},
    },
    "patterns, rank-stabilized": {
        "r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {"q_proj": 9}, "alpha_pattern": {"v_proj": 5},
    },
    "a pattern of modules": {"r": 4, "target_modules": r"model\.layers\.[02]\..*(q|gate)_proj"},
    "some layers": {"r": 4, "target_modules": ["q_proj"], "layers_to_transform": [0, 2]},
    "embedding and head": {"r": 4, "target_modules": ["embed_tokens", "lm_head", "q_proj"]},
    "a head of its own": {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "excluded": {"r": 4, "target_modules": ["q_proj"], "exclude_modules": r".*\.1\..*"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_what_peft_saves_is_read_and_goes_back(
    settings: dict[str, Any], tmp_path: Path, random_gpt: Maker
) -> None:
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    model = written(tmp_path / "base", random_gpt)
    base = model(IDS)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings)
    theirs = peft.get_peft_model(their_base(tmp_path / "base"), config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "magnitude" in name:
                parameter.copy_(parameter * (1 + torch.rand_like(parameter)))
            elif parameter.requires_grad:
                parameter.copy_(torch.randn_like(parameter) / 6)
    expected = their_logits(theirs)
    theirs.save_pretrained(tmp_path / "adapter")
    adapter = read_adapter(tmp_path / "adapter")
    assert adapter.base == str(tmp_path / "base")
    attach(model, adapter)
    assert difference(model(IDS), expected) < TOLERANCE
    assert difference(model(IDS), base) > 0.1
    # and out again, for peft and for ourselves, also without the settings that it came with
    write_adapter(tmp_path / "again", adapter, "peft")
    write_adapter(tmp_path / "listed", replace(adapter, targets=None), "peft")
    for place in ("again", "listed"):
        back = peft.PeftModel.from_pretrained(
            their_base(tmp_path / "base"), tmp_path / place
        ).eval()
        assert difference(their_logits(back), expected) < TOLERANCE
        ours = load_model(tmp_path / "base")
        attach(ours, read_adapter(tmp_path / place))
        assert difference(ours(IDS), model(IDS)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_ours_opens_in_peft_and_merges_there(kind: str, tmp_path: Path, random_gpt: Maker) -> None:
    pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    model = written(tmp_path / "base", random_gpt)
    changes = {
        path: random_change(model.config, path, 2 + i % 4, [0.7, 2.0][i % 2], kind == "dora")
        for i, path in enumerate([*paths([1], ALL), *paths([2], QUERIES), "lm_head"])
    }
    adapter = Adapter(fine_tune_type="dora" if kind == "dora" else "lora", modules=changes)
    write_adapter(tmp_path / "adapter", adapter, "peft")
    expected = plainly(model, adapter)(IDS)
    theirs = peft.PeftModel.from_pretrained(their_base(tmp_path / "base"), tmp_path / "adapter")
    assert difference(their_logits(theirs.eval()), expected) < TOLERANCE
    assert difference(their_logits(theirs.merge_and_unload()), expected) < TOLERANCE


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("first", ["peft", "mlx-lm"])
@pytest.mark.parametrize("head", [["lm_head"], []], ids=["head", "no head"])
def test_from_form_to_form_and_back(
    head: list[str], first: Any, dora: bool, tmp_path: Path, random_gpt: Maker
) -> None:
    model = random_gpt(**SHAPE)
    modules = [*paths([0, 2], QUERIES), *paths([1], ALL), *head]
    adapter = random_adapter(model.config, modules, rank=4, scale=37 / 4, dora=dora)
    adapter = replace(adapter, dropout=0.25, base="owner/base")
    second = "mlx-lm" if first == "peft" else "peft"
    write_adapter(tmp_path / "one", adapter, first)
    write_adapter(tmp_path / "two", read_adapter(tmp_path / "one"), second)
    write_adapter(tmp_path / "three", read_adapter(tmp_path / "two"), first)
    for place in ("one", "two", "three"):
        back = read_adapter(tmp_path / place)
        check_fit(back, model.config)
        assert (back.dropout, back.base) == (0.25, "owner/base")
        assert set(back.modules) == set(modules)
        for path, change in back.modules.items():
            same = adapter.modules[path]
            assert change.scale == same.scale
            assert mx.array_equal(change.a, same.a)
            assert mx.array_equal(change.b, same.b)
            assert (change.m is None) == (same.m is None)
            if change.m is not None and same.m is not None:
                assert mx.array_equal(change.m, same.m)
    names = ("adapter_config.json", "adapters.safetensors", "adapter_model.safetensors")
    for name in names:
        if (tmp_path / "one" / name).exists():
            again = (tmp_path / "three" / name).read_bytes()
            assert again == (tmp_path / "one" / name).read_bytes()


def test_it_is_written_for_eyes_too(tmp_path: Path, random_gpt: Maker) -> None:
    config = random_gpt(**SHAPE).config
    write_adapter(tmp_path / "a", random_adapter(config, paths([1, 2], QUERIES), 4, 2.0), "peft")
    settings = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["q_proj", "v_proj"]
    assert settings["layers_to_transform"] == [1, 2]
    assert (settings["r"], settings["lora_alpha"]) == (4, 8)
    tensors = mx.load(str(tmp_path / "a" / "adapter_model.safetensors"))
    shapes = {name: w.shape for name, w in tensors.items() if "layers.1.self_attn.v" in name}
    assert shapes == {
        "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight": (4, 32),
        "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight": (16, 4),
    }


def test_an_embedding_stays_in_the_form_that_it_came_in(tmp_path: Path, random_gpt: Maker) -> None:
    config = random_gpt(**SHAPE).config
    ours = random_adapter(config, ["model.embed_tokens"])
    with pytest.raises(CheckpointError, match="another thing"):
        write_adapter(tmp_path / "a", ours, "peft")
    with pytest.raises(CheckpointError, match="another thing"):
        write_adapter(tmp_path / "a", replace(ours, head_follows_embedding=False), "mlx-lm")
    dora = random_adapter(config, ["model.embed_tokens"], dora=True)
    with pytest.raises(CheckpointError, match="DoRA of"):
        write_adapter(tmp_path / "a", replace(dora, head_follows_embedding=False), "peft")
    saved = replace(
        random_adapter(config, paths([0], QUERIES)),
        weights={"lm_head.weight": noise("head", 61, 32)},
    )
    with pytest.raises(CheckpointError, match=r"lm_head.*no room"):
        write_adapter(tmp_path / "a", saved, "mlx-lm")
    assert not list(tmp_path.iterdir())


def test_weights_that_are_stored_whole_come_back(tmp_path: Path, random_gpt: Maker) -> None:
    config = random_gpt(**SHAPE).config
    whole = {"model.norm.weight": noise("n", 32), "lm_head.weight": noise("head", 61, 32)}
    adapter = replace(random_adapter(config, paths([0], QUERIES)), weights=whole)
    write_adapter(tmp_path / "a", adapter, "peft")
    settings = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert settings["modules_to_save"] == ["lm_head", "model.norm"]
    back = read_adapter(tmp_path / "a")
    check_fit(back, config)
    assert {name: w.tolist() for name, w in back.weights.items()} == {
        name: w.tolist() for name, w in whole.items()
    }


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, random_gpt: Maker) -> None:
    adapter = random_adapter(random_gpt().config, paths([0], QUERIES))
    write_adapter(tmp_path / "new" / "er", adapter, "peft")
    (tmp_path / "empty").mkdir()
    write_adapter(tmp_path / "empty", adapter, "mlx-lm")
    before = (tmp_path / "empty" / "adapter_config.json").read_bytes()
    for taken in (tmp_path / "new" / "er", tmp_path / "empty"):
        with pytest.raises(CheckpointError, match="already"):
            write_adapter(taken, adapter, "peft")
    assert (tmp_path / "empty" / "adapter_config.json").read_bytes() == before
    assert sorted(f.name for f in tmp_path.iterdir()) == ["empty", "new"]


def test_what_is_not_known_is_said(tmp_path: Path, random_gpt: Maker) -> None:
    write_adapter(tmp_path / "a", random_adapter(random_gpt().config, paths([0], QUERIES)), "peft")
    file = tmp_path / "a" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"new_thing": 3, "other": None}))
    with pytest.warns(MLXGPTWarning, match=r"without effect: 'new_thing'$"):
        read_adapter(tmp_path / "a")
