"""Directories that mlx-lm quantized: the same logits here, packed and unpacked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from family_cases import IDS, change
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import load_model, open_checkpoint, read_json, save_model, write_json
from mlxgpt.checkpoint.hf.config_reading import from_hf
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import train_char

utils = pytest.importorskip("mlx_lm.utils")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TOKENIZER = train_char(["".join(map(chr, range(40, 100)))])
UP, DOWN = "model.layers.0.mlp.up_proj", "model.layers.1.mlp.down_proj"
Make = Callable[..., GPT]


def mixed(path: str, module: Any) -> bool | dict[str, Any]:
    """mlx-lm's recipes are of this form: some paths otherwise, some not at all."""
    if "down_proj" in path:
        return {"group_size": 32, "bits": 8, "mode": "affine"}
    if "k_proj" in path:
        return {"group_size": 64, "bits": 2, "mode": "affine"}
    return "v_proj" not in path and "embed" not in path


def quantized(directory: Path, make: Make, how: dict[str, Any] | None = None, **fields: Any) -> Any:
    """Save a model, and let mlx-lm write a quantized one of it into `directory`."""
    sizes = {"n_layer": 2, "n_embd": 128, "head_dim": 32, "intermediate_size": 192}
    model = make(vocab_size=TOKENIZER.vocab_size, max_seq_len=64, **sizes | fields)
    save_model(directory.with_name("whole"), model, TOKENIZER)
    theirs, config = utils.load_model(directory.with_name("whole"))
    arguments = {"group_size": 64, "bits": 4} | (how or {})
    theirs, config = utils.quantize_model(theirs, config, **arguments)
    utils.save_model(directory, theirs)
    utils.save_config(config, directory / "config.json")
    return theirs


def logits(network: Any) -> np.ndarray:
    out = np.array(network(mx.array(IDS)).astype(mx.float32))
    assert out.std() > 0.1
    return out


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "4 bits": ({}, {}),
    "4 bits in 32s": ({"group_size": 32}, {"tie_embeddings": False}),
    "8 bits in 32s": ({"group_size": 32, "bits": 8}, {}),
    "8 bits": ({"bits": 8}, {"tie_embeddings": False}),
    "3 bits in 32s": ({"bits": 3, "group_size": 32}, {}),
    "6 bits in 64s": ({"bits": 6}, {}),
    "mixed": ({"quant_predicate": mixed}, {"tie_embeddings": False}),
    "mxfp4": ({"mode": "mxfp4", "group_size": None, "bits": None}, {}),
    "mxfp8": ({"mode": "mxfp8", "group_size": None, "bits": None}, {}),
    "nvfp4": ({"mode": "nvfp4", "group_size": None, "bits": None}, {}),
    "a width that does not come out": ({}, {"n_embd": 96}),
    "a qwen3": ({}, {"qk_norm": True}),
    "a qwen2 with biases": ({"group_size": 32}, {"qkv_bias": True}),
    "a smollm3": ({}, {"no_rope_layers": (1,), "mlp_bias": True}),
}


@pytest.mark.parametrize(("how", "fields"), KINDS.values(), ids=KINDS)
def test_logits_are_those_of_mlx_lm(
    how: dict[str, Any], fields: dict[str, Any], tmp_path: Path, random_gpt: Make
) -> None:
    theirs = quantized(tmp_path / "q", random_gpt, how, **fields)
    expected = logits(theirs)
    packed = load_model(tmp_path / "q", as_stored=True)
    assert np.abs(logits(packed) - expected).max() < 1e-4
    unpacked = load_model(tmp_path / "q", as_stored=False)
    assert all(w.dtype == mx.float32 for w in unpacked.weights().values())
    assert np.abs(logits(unpacked) - expected).max() < 2e-3
    modules = open_checkpoint(tmp_path / "q").quantization
    stored = {n.removesuffix(".scales") for n in packed.weights() if n.endswith(".scales")}
    assert modules.keys() == stored
    assert stored


def test_mlx_lms_own_command_in_half_precision(
    tmp_path: Path, random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    convert = pytest.importorskip("mlx_lm.convert")
    model = random_gpt(n_embd=128, vocab_size=TOKENIZER.vocab_size)
    save_model(tmp_path / "whole", model, TOKENIZER)
    convert.convert(
        str(tmp_path / "whole"), str(tmp_path / "q"), quantize=True, q_group_size=32, q_bits=8,
        dtype="bfloat16",
    )  # fmt: skip
    theirs, _ = utils.load_model(tmp_path / "q")
    packed = load_model(tmp_path / "q", as_stored=True).weights()
    for name, w in tree_flatten(theirs.parameters()):
        assert packed.pop(name).dtype == w.dtype
    assert not packed
    unpacked = load_model(tmp_path / "q", as_stored=False)
    known = {path: Quantization(bits=8, group_size=32) for path in paths(unpacked)}
    assert open_checkpoint(tmp_path / "q").quantization == known
    # As far from the model as 8 bits and a rounding to bfloat16 take it, and no farther.
    assert np.abs(logits(unpacked) - logits(model)).mean() < 0.1 * logits(model).std()
    assert np.abs(logits(unpacked) - logits(theirs)).mean() < 0.1 * logits(model).std()


def paths(model: Any) -> list[str]:
    return [n.removesuffix(".weight") for n, w in model.weights().items() if w.ndim == 2]


def test_settings_of_each_module_are_read(tmp_path: Path, random_gpt: Make) -> None:
    quantized(tmp_path / "q", random_gpt, {"quant_predicate": mixed}, tie_embeddings=False)
    modules = open_checkpoint(tmp_path / "q").quantization
    assert modules[DOWN] == Quantization(bits=8, group_size=32)
    assert modules["model.layers.0.self_attn.k_proj"] == Quantization(bits=2, group_size=64)
    assert modules[UP] == modules["lm_head"] == Quantization(bits=4, group_size=64)
    assert "model.embed_tokens" not in modules
    assert "model.layers.1.self_attn.v_proj" not in modules
    names = [name for name, _ in open_checkpoint(tmp_path / "q").weights()]
    at = names.index(f"{UP}.weight")
    assert names[at : at + 3] == [f"{UP}.weight", f"{UP}.scales", f"{UP}.biases"]
    tensors = open_checkpoint(tmp_path / "q").tensors()
    assert tensors.keys() == set(names)
    assert (tensors[f"{UP}.weight"].dtype, tensors[f"{UP}.weight"].shape) == ("U32", (192, 16))
    assert tensors[f"{UP}.weight"].nbytes == 192 * 16 * 4


def test_the_key_of_older_versions_is_read(tmp_path: Path, random_gpt: Make) -> None:
    quantized(tmp_path / "q", random_gpt)
    change(tmp_path / "q", ("quantization",))
    assert open_checkpoint(tmp_path / "q").quantization[UP] == Quantization(bits=4, group_size=64)


def test_a_tied_head_may_be_stored_once_more(tmp_path: Path, random_gpt: Make) -> None:
    quantized(tmp_path / "q", random_gpt)
    before = logits(load_model(tmp_path / "q"))
    tensors = tensors_of(tmp_path / "q")
    parts = {n: w for n, w in tensors.items() if n.startswith("model.embed_tokens.")}
    head = {f"lm_head.{n.rpartition('.')[2]}": w for n, w in parts.items()}
    store(tmp_path / "q", tensors | head)
    assert np.array_equal(logits(load_model(tmp_path / "q")), before)
    store(tmp_path / "q", tensors | head | {"lm_head.scales": head["lm_head.scales"] * 2})
    assert "lm_head.scales differs" in refused(tmp_path / "q")
    store(tmp_path / "q", tensors | {"lm_head.weight": mx.zeros((61, 128))})
    assert "'lm_head' is quantized in another way" in refused(tmp_path / "q")


def tensors_of(directory: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    return tensors


def store(directory: Path, tensors: dict[str, mx.array]) -> None:
    mx.save_safetensors(str(directory / "model.safetensors"), tensors)


def refused(directory: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(directory)
    assert str(directory) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


Q: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({**Q, "bits": 8}, ["model.embed_tokens.weight", "8 bits in groups of 64"]),
        ({**Q, "group_size": 32}, ["scales", "4 bits in groups of 32"]),
        ({**Q, UP: {**Q, "bits": 2}}, [f"{UP}.weight", "2 bits"]),
        ({**Q, UP: False}, [UP, "says that it is not"]),
        ({**Q, "lm_head2": Q}, ["lm_head2", "no matrix"]),
        ({**Q, "model.norm": Q}, ["model.norm", "no matrix"]),
        ({**Q, UP: {**Q, "global_scale": True}}, [UP, "global_scale"]),
        ({**Q, UP: 4}, [UP]),
        ({**Q, "quant_method": "x"}, ["quant_method"]),
        ({**Q, "mode": "mxfp4", "group_size": 32}, ["scales", "F32; expected U8"]),
        ({**Q, "mode": "magic"}, ["'magic'"]),
        ({**Q, "bits": 7}, ["7 bits"]),
        ({**Q, "bits": None}, ["'bits'"]),
        ({**Q, "group_size": True}, ["'group_size'"]),
        ({"bits": 4}, ["'group_size'"]),
        ([], ["quantization"]),
        (None, [".scales", "no 'quantization'"]),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_the_files_is_refused(
    settings: Any, parts: list[str], tmp_path: Path, random_gpt: Make
) -> None:
    quantized(tmp_path / "q", random_gpt)
    change(tmp_path / "q", ("quantization_config",), quantization=settings)
    message = refused(tmp_path / "q")
    assert all(part in message for part in parts), message


def test_missing_extra_and_misshapen_parts_are_named(tmp_path: Path, random_gpt: Make) -> None:
    quantized(tmp_path / "q", random_gpt)
    tensors = tensors_of(tmp_path / "q")
    for name in (f"{UP}.scales", f"{UP}.biases", f"{UP}.weight"):
        store(tmp_path / "q", {n: w for n, w in tensors.items() if n != name})
        assert f"missing: '{name}'" in refused(tmp_path / "q")
        store(tmp_path / "q", tensors | {name: tensors[name][:-1]})
        assert f"'{name}' has shape" in refused(tmp_path / "q")
        store(tmp_path / "q", tensors | {name: tensors[name].T})
        assert f"'{name}' has shape" in refused(tmp_path / "q")
        store(tmp_path / "q", tensors | {name: tensors[name].astype(mx.int32)})
        assert f"'{name}' has dtype I32" in refused(tmp_path / "q")
    bad = mx.where(mx.arange(2)[None, :] == 1, float("nan"), tensors[f"{UP}.scales"])
    store(tmp_path / "q", tensors | {f"{UP}.scales": bad})
    assert f"'{UP}.scales' holds NaN" in refused(tmp_path / "q")
    store(tmp_path / "q", tensors | {"model.norm.scales": tensors[f"{UP}.scales"]})
    assert "not part of this model: 'model.norm.scales'" in refused(tmp_path / "q")


METHODS = ["gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4", "torchao", "hqq"]


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_are_refused_by_name(method: str, tmp_path: Path, random_gpt: Make) -> None:
    save_model(tmp_path / "m", random_gpt(vocab_size=61), train_char(["abc"]))
    settings = {"quant_method": method, "bits": 4, "group_size": 128}
    change(tmp_path / "m", quantization_config=settings)
    message = refused(tmp_path / "m")
    assert f"'{method}'" in message or method in message
    assert "not quantized" in message
    assert "MLX" in message
    change(tmp_path / "m", quantization_config={"load_in_4bit": True})
    assert "an unnamed method" in refused(tmp_path / "m")


# What we write


def test_what_we_write_mlx_lm_reads(tmp_path: Path, random_gpt: Make) -> None:
    from mlxgpt.checkpoint.hf.config_writing import to_hf
    from mlxgpt.checkpoint.hf.weight_files import index_of

    model = random_gpt(n_embd=128, vocab_size=61, tie_embeddings=False, intermediate_size=192)
    most, some = Quantization(bits=4, group_size=64), Quantization(bits=8, group_size=32)
    modules = dict.fromkeys(paths(model), most) | {UP: some}
    del modules["lm_head"], modules[DOWN]
    quantize_modules(model, modules)
    raw = to_hf(model.config, bos_token_id=1, eos_token_ids=2, quantization=modules)
    as_dict = {"group_size": 32, "bits": 8, "mode": "affine"}
    assert raw["quantization"] == Q | {UP: as_dict, DOWN: False, "lm_head": False}
    assert raw["quantization_config"] == raw["quantization"]
    assert from_hf(raw, "x") == model.config
    tmp_path.joinpath("q").mkdir()
    write_json(tmp_path / "q" / "config.json", raw)
    index = index_of(model.config, mx.float32, modules)
    write_json(tmp_path / "q" / "model.safetensors.index.json", index)
    store(tmp_path / "q", model.weights())
    assert index["weight_map"].keys() == model.weights().keys()
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in model.weights().values())
    theirs, _ = utils.load_model(tmp_path / "q")
    assert np.abs(logits(theirs) - logits(model)).max() < 1e-4
    assert open_checkpoint(tmp_path / "q").quantization == modules
    assert np.array_equal(logits(load_model(tmp_path / "q", as_stored=True)), logits(model))
    assert "quantization" not in to_hf(model.config, bos_token_id=1, eos_token_ids=2)
    assert read_json(tmp_path / "q" / "config.json")["torch_dtype"] == "float32"
