"""A GGUF file of each architecture: our logits against those of transformers and of llama.cpp."""

from pathlib import Path
from typing import Any

import llama_cpp_oracle
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType
from tiny_gguf import VOCAB, model_metadata, model_tensors, write_gguf

from mlxgpt.checkpoint import load_model
from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.gguf.rope_factors import rope_factors
from mlxgpt.model import RopeScaling

IDS = np.random.default_rng(5).integers(0, VOCAB, 40).tolist()
QKV = ("attn_q", "attn_k", "attn_v")
LLAMA3 = RopeScaling(rope_type="llama3", factor=8, original_max_position_embeddings=32)
YARN = {
    "rope__scaling__type": "yarn", "rope__scaling__factor": 4.0,
    "rope__scaling__original_context_length": 32,
}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], Q]] = {
    "llama": ("llama", {}, {}, Q.F32),
    "llama, untied, float16": ("llama", {}, {"tied": False}, Q.F16),
    "llama, Q8_0": ("llama", {}, {}, Q.Q8_0),
    "llama, Q4_1": ("llama", {}, {}, Q.Q4_1),
    "llama, Q5_1": ("llama", {}, {}, Q.Q5_1),
    "qwen2, biases": ("qwen2", {}, {"biases": QKV, "tied": False}, Q.F32),
    "qwen2, Q4_0": ("qwen2", {}, {"biases": QKV}, Q.Q4_0),
}
ONLY_LLAMA_CPP: dict[str, tuple[str, dict[str, Any], dict[str, Any], Q]] = {
    "qwen3": ("qwen3", {}, {"tied": False}, Q.F32),
    "llama, biases": ("llama", {}, {"biases": (*QKV, "attn_output")}, Q.F32),
    "larger heads": (
        "llama", {"attention__key_length": 24, "attention__value_length": 24},
        {"head_dim": 24}, Q.F32,
    ),
    "qwen3, larger heads": (
        "qwen3", {"attention__key_length": 24, "attention__value_length": 24},
        {"head_dim": 24}, Q.F32,
    ),
    "smollm3": ("smollm3", {"block_count": 5}, {"layers": 5}, Q.F32),
    "linear": ("llama", {"rope__scaling__factor": 4.0}, {}, Q.F32),
    "yarn": ("qwen2", YARN, {}, Q.F32),
    "yarn, sharper": ("llama", YARN | {"rope__scaling__attn_factor": 0.8}, {}, Q.F32),
    "llama3": ("llama", {}, {"llama3": True}, Q.F32),
}  # fmt: skip


def written(folder: Path, case: tuple[str, dict[str, Any], dict[str, Any], Q], **more: Any) -> Path:
    architecture, changes, kind_of, quantization = case
    kind_of = dict(kind_of)
    stretched = kind_of.pop("llama3", False)
    tensors = model_tensors(architecture, **kind_of)
    types = {name: quantization for name, w in tensors.items() if w.ndim == 2}
    if stretched:
        tensors["rope_freqs.weight"] = rope_factors(16, 500.0, LLAMA3)
    # Neither a tokenizer of its own nor the number of ids is asked of a model without one.
    metadata = model_metadata(architecture, vocab_size=VOCAB, **changes) | more
    return write_gguf(folder / "model.gguf", metadata, tensors, types)


def logits(path: Path) -> np.ndarray:
    ours = np.array(load_model(GGUFFile(path))(mx.array([IDS])))[0]
    assert ours.std() > 0.5
    return ours


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_transformers_gives_the_same_logits(
    case: tuple[str, dict[str, Any], dict[str, Any], Q],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = written(tmp_path, case)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits.numpy()[0]
    # What MLX has nothing for is rounded to float16.
    np.testing.assert_allclose(logits(path), expected, atol=0.2 if case[3] is Q.Q5_1 else 1e-4)


TOKENIZER: dict[str, Any] = {
    "model": "llama", "tokens": [f"t{i}" for i in range(VOCAB)],
    "scores": [0.0] * VOCAB, "token_type": ([1] * VOCAB, GGUFValueType.ARRAY),
    "add_bos_token": False,
}  # fmt: skip


# It rounds to 8 or 16 bits what it multiplies with weights that are not float32.
EXACT = {name: case for name, case in (CASES | ONLY_LLAMA_CPP).items() if case[3] is Q.F32}


@pytest.mark.slow
@pytest.mark.parametrize("case", EXACT.values(), ids=EXACT)
def test_llama_cpp_gives_the_same_logits(
    case: tuple[str, dict[str, Any], dict[str, Any], Q], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    path = written(tmp_path, case, **{f"tokenizer.ggml.{k}": v for k, v in TOKENIZER.items()})
    ours = logits(path).astype(np.float64)
    ours -= ours.max(1, keepdims=True)
    with llama_cpp_oracle.opened(path) as llama:
        for length in (3, len(IDS)):
            found = llama.likeliest(IDS[:length], VOCAB)
            theirs = np.array([found[i] for i in range(VOCAB)])
            np.testing.assert_allclose(ours[length - 1], theirs - theirs.max(), atol=5e-3)
