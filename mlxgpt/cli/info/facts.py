"""What the user typed for a model -> the plain facts that `mlxgpt info --json` prints."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint import open_checkpoint
from mlxgpt.checkpoint.borrowed import knows
from mlxgpt.checkpoint.fit import Fit, fit_here
from mlxgpt.checkpoint.summary import Summary, summarize
from mlxgpt.cli.tokenizer.info import family_of
from mlxgpt.text import Tokenizer
from mlxgpt.train.run_facts import run_facts

Facts = dict[str, Any]


def model_facts(path: Path) -> Facts:
    """Return the facts. The keys are stable; a value that is not known is None.

    Raises `CheckpointError` in one line for what is no model, or a damaged or incomplete one.
    """
    checkpoint = open_checkpoint(path)
    summary = summarize(checkpoint)
    run = run_facts(checkpoint.path)
    sizes, shape = summary.footprint, summary.shape
    return {
        "kind": "model" if run is None else "run",
        "format": summary.format,
        "family": summary.family,
        "run_by": _run_by(summary),
        "n_layer": shape.n_layer,
        "n_embd": shape.n_embd,
        "n_head": shape.n_head,
        "n_kv_head": shape.n_kv_head,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "context": shape.context,
        "vocab_size": shape.vocab,
        **_attention(summary),
        "parameters": sizes.parameters,
        "parameters_outside_embedding": sizes.outside_embedding,
        "tensors": summary.num_tensors,
        "dtype": sizes.dtype,
        "quantization": [{**asdict(how), "matrices": n} for how, n in summary.quantization],
        "stored_types": sizes.stored_types,
        "bytes_on_disk": sizes.stored_bytes,
        "bytes_in_memory": sizes.memory_bytes,
        "bytes_in_memory_float32": sizes.float32_bytes,
        "kv_bytes_per_token": _times(summary.kv_numbers_per_token, sizes.number_bytes),
        "kv_bytes_context": _times(summary.kv_numbers, sizes.number_bytes),
        "kv_bytes_per_token_float32": _times(summary.kv_numbers_per_token, 4),
        "kv_bytes_context_float32": _times(summary.kv_numbers, 4),
        "here": _here(fit_here(summary)),
        "stop_tokens": _stop_tokens(summary),
        "chat_template": summary.chat_template,
        "tokenizer": _tokenizer(summary.tokenizer),
        "tokenizer_problem": summary.tokenizer_problem,
        "training": None if run is None else asdict(run),
    }


def _run_by(summary: Summary) -> str | None:
    """Return whose network runs the model; None if there is none."""
    if summary.config is not None:
        return "mlxgpt"
    return "mlx-lm" if summary.format == "safetensors" and knows(summary.family) else None


def _attention(summary: Summary) -> Facts:
    """Return what positions and windows are; of a foreign model only what its config names."""
    config, shape = summary.config, summary.shape
    if config is None:
        return {
            "rope_theta": shape.rope_theta,
            "rope_scaling": shape.rope_type and {"rope_type": shape.rope_type},
            "layers_without_rope": None,
            "sliding_window": shape.sliding_window,
            "layers_with_window": None,
            "tie_embeddings": None,
        }
    windows = [config.window(layer) for layer in range(config.n_layer)]
    return {
        "rope_theta": config.rope_theta,
        "rope_scaling": config.rope_scaling and asdict(config.rope_scaling),
        "layers_without_rope": len(config.no_rope_layers),
        "sliding_window": config.sliding_window,
        "layers_with_window": sum(window is not None for window in windows),
        "tie_embeddings": config.tie_embeddings,
    }


def _here(fit: Fit) -> Facts:
    return {**asdict(fit), "fits": fit.fits, "tokens": fit.tokens}


def _times(numbers: int | None, size: int) -> int | None:
    return None if numbers is None else numbers * size


def _stop_tokens(summary: Summary) -> list[Facts]:
    """Return the ids that end a text: those of the model, and the tokenizer's own."""
    tokenizer, ids = summary.tokenizer, set(summary.stop_ids)
    if tokenizer is None:
        return [{"id": i, "text": None} for i in sorted(ids)]
    if tokenizer.eot_id is not None:
        ids.add(tokenizer.eot_id)
    known = range(tokenizer.vocab_size)
    return [{"id": i, "text": tokenizer.decode([i]) if i in known else None} for i in sorted(ids)]


def _tokenizer(tokenizer: Tokenizer | None) -> Facts | None:
    if tokenizer is None:
        return None
    ids = tokenizer.special_tokens
    named = {name: literal for name, literal in tokenizer.border_names().items() if literal in ids}
    return {
        "kind": tokenizer.kind,
        "family": family_of(tokenizer),
        "engine": tokenizer.engine,
        "vocab_size": tokenizer.vocab_size,
        "special_tokens": len(ids),
        "named_tokens": {n: {"id": ids[t], "text": t} for n, t in named.items()},
    }
