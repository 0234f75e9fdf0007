"""Tiny GGUF files, written by the gguf package: of each architecture, with any metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFEndian, GGUFValueType, GGUFWriter, quants

LAYERS, WIDTH, HEADS, KV_HEADS, MLP, VOCAB = 2, 64, 4, 2, 96, 48
PLAIN = {Q.F32: np.float32, Q.F16: np.float16}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    types: Mapping[str, Q] | None = None,
    alignment: int | None = None,
    endian: GGUFEndian = GGUFEndian.LITTLE,
) -> Path:
    """Write a file. A value is given as it is (ints as uint32), or as (value, its GGUF type).

    `types` says how a tensor is packed, else it is float32; a tensor of bytes is taken as packed.
    """
    writer = GGUFWriter(path, str(metadata.get("general.architecture", "llama")), endianess=endian)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        kind = GGUFValueType.get_type(value) if not isinstance(value, tuple) else None
        if isinstance(value, tuple):
            value, kind = value
        elif kind is GGUFValueType.INT32:
            kind = GGUFValueType.UINT32
        writer.add_key_value(key, value, kind)
    for name, tensor in tensors.items():
        kind = (types or {}).get(name, Q.F32)
        packed = tensor.dtype == np.uint8
        data = tensor if packed else tensor.astype(PLAIN.get(kind, np.float32))
        if not packed and kind not in PLAIN:
            data = quants.quantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def model_metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    """Metadata of a tiny model. `rope__freq_base=5.0` stands for `llama.rope.freq_base`; None
    leaves a key out."""
    sizes: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": WIDTH,
        "feed_forward_length": MLP,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 500.0,
    }
    sizes |= {name.replace("__", "."): value for name, value in changes.items()}
    metadata = {f"{architecture}.{k}": v for k, v in sizes.items() if v is not None}
    return {"general.architecture": architecture, **metadata}


def model_tensors(
    architecture: str = "llama",
    *,
    biases: tuple[str, ...] = (),
    tied: bool = True,
    head_dim: int = WIDTH // HEADS,
    layers: int = LAYERS,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Random tensors of a tiny model under the names of the file; no gain is 1."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        return (random.normal(size=(rows, columns)) * scale * columns**-0.5).astype(np.float32)

    def gain(size: int) -> np.ndarray:
        return (1 + 0.3 * random.normal(size=size)).astype(np.float32)

    shapes = {
        "attn_q": (HEADS * head_dim, WIDTH),
        "attn_k": (KV_HEADS * head_dim, WIDTH),
        "attn_v": (KV_HEADS * head_dim, WIDTH),
        "attn_output": (WIDTH, HEADS * head_dim),
        "ffn_gate": (MLP, WIDTH),
        "ffn_up": (MLP, WIDTH),
        "ffn_down": (WIDTH, MLP),
    }
    tensors = {"token_embd.weight": matrix(VOCAB, WIDTH, 4), "output_norm.weight": gain(WIDTH)}
    if not tied:
        tensors["output.weight"] = matrix(VOCAB, WIDTH)
    for n in range(layers):
        tensors[f"blk.{n}.attn_norm.weight"] = gain(WIDTH)
        tensors[f"blk.{n}.ffn_norm.weight"] = gain(WIDTH)
        if architecture == "qwen3":
            tensors[f"blk.{n}.attn_q_norm.weight"] = gain(head_dim)
            tensors[f"blk.{n}.attn_k_norm.weight"] = gain(head_dim)
        for name, shape in shapes.items():
            tensors[f"blk.{n}.{name}.weight"] = matrix(*shape, 2)
            if name in biases:
                tensors[f"blk.{n}.{name}.bias"] = gain(shape[0]) - 1
    return tensors
