"""A prepared run -> the lines that say, before the first step, what will be trained on what."""

import statistics
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.data import WindowBatches
from mlxgpt.model import kv_bytes_per_token, non_embedding, num_parameters
from mlxgpt.train.environment import Environment
from mlxgpt.train.prepared import Prepared


def describe(prepared: Prepared, environment: Environment) -> list[str]:
    """Return a few lines: corpus, tokenizer, model, run, machine, and notes."""
    config, batches, tokenizer = prepared.config, prepared.windows, prepared.tokenizer
    model, per_token = config.model, batches.bytes_per_token
    passes = prepared.epoch(config.steps)
    heads = f"{model.n_head} heads" + (
        f" ({model.kv_heads} key/value)" if model.kv_heads != model.n_head else ""
    )
    batch = f"{config.micro_batch_size} x {model.max_seq_len}" + (
        f" x {config.grad_accum_steps}" if config.grad_accum_steps > 1 else ""
    )
    workers = f", {config.workers} workers" if config.workers != 1 else ""
    return [
        f"corpus     {prepared.corpus.summary()}",
        *_texts(prepared),
        f"tokenizer  {tokenizer.kind}, {tokenizer.vocab_size:,} ids, {per_token:.2f} bytes a token",
        f"model      {num_parameters(model):,} parameters, "
        f"{non_embedding(model):,} of them outside the embedding",
        f"           {model.n_layer} layers, {model.n_embd} wide, {heads}; "
        f"{kv_bytes_per_token(model):,} cache bytes a token",
        f"run        {config.steps:,} steps of {batch} tokens, {passes:.2f} passes; "
        f"{config.optimizer.name}, {config.dtype}",
        f"machine    {mx.default_device().type.name}{workers}, "
        f"{environment.gemm_gflops:,.0f} GFLOP/s measured",
        *(f"note       {note}" for note in (*_notes(prepared), *environment.notes)),
    ]


def _texts(prepared: Prepared) -> list[str]:
    """Say what is trained and validated on."""
    batches = prepared.windows
    end = f"{prepared.val.num_tokens:,} to validate on" + (
        " (from the cache)" if prepared.reused else ""
    )
    if isinstance(batches, WindowBatches):
        return [f"tokens     {batches.token_file.num_tokens:,} to train on, {end}"]
    dropout = f"with BPE-dropout {batches.dropout:g}" if batches.dropout else "without BPE-dropout"
    return [
        f"text       {batches.text.num_bytes:,} bytes to train on, streamed {dropout}",
        f"tokens     {end}",
    ]


def _notes(prepared: Prepared) -> list[str]:
    wanted, got = prepared.config.tokenizer.vocab_size, prepared.tokenizer.vocab_size
    if wanted is None or wanted == got:
        return [*prepared.notes]
    return [
        *prepared.notes,
        f"the text holds no more than {got:,} ids to learn, of the {wanted:,} asked for",
    ]


def speed(metrics: list[dict[str, Any]]) -> str:
    """Return one line on how fast a run went, and on the memory it took, from its metrics."""
    steps = [r for r in metrics if "tok_per_sec" in r]
    peaks = [r for r in metrics if "rss_peak_bytes" in r]
    if not steps or not peaks:
        return "nothing was measured"
    tokens, mfu = (statistics.median(r[name] for r in steps) for name in ("tok_per_sec", "mfu"))
    process, arrays = (
        max(r[name] for r in peaks) / 2**20 for name in ("rss_peak_bytes", "mlx_peak_bytes")
    )
    return (
        f"{tokens:,.0f} tokens/s, {mfu:.0%} of the matrix speed (MFU); peak memory "
        f"{process:,.0f} MiB, {arrays:,.0f} of them in arrays"
    )


def title(prepared: Prepared) -> str:
    """Return one line for a plot: corpus, size, tokenizer, steps."""
    config, tokenizer = prepared.config, prepared.tokenizer
    size = num_parameters(config.model) / 1e6
    return (
        f"{Path(prepared.corpus.name).name}: {size:.1f} M parameters, {tokenizer.kind} with "
        f"{tokenizer.vocab_size:,} ids, {config.steps:,} steps"
    )
