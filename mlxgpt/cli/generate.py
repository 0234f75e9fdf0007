"""`mlxgpt generate`: a model directory and a prompt -> text, as it is written."""

from pathlib import Path
from typing import Annotated

import typer

from mlxgpt.cli.shell import given_text, import_heavy


def generate(
    model: Annotated[Path, typer.Argument(help="Run or model directory.")],
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", help="Text to continue; - reads standard input.")
    ] = "",
    tokens: Annotated[int, typer.Option(help="Tokens to write at most.")] = 200,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest. [off]")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among this much mass. [off]")] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Drop what is less likely than this share of the best. [off]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed writes the same text. [default: a new one]")
    ] = None,
) -> None:
    """Let a model write, from a prompt or from nothing."""
    import_heavy("mlxgpt.checkpoint", "mlxgpt.infer")
    import secrets
    import sys
    import time

    from mlxgpt.checkpoint import load_model, load_tokenizer, open_checkpoint
    from mlxgpt.errors import ConfigError
    from mlxgpt.infer import SamplingParams, generate
    from mlxgpt.text import repair_surrogates

    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        max_tokens=tokens,
        seed=secrets.randbelow(2**31) if seed is None else seed,
    )
    checkpoint = open_checkpoint(model)
    network, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    text = repair_surrogates(given_text(prompt))
    ids = tokenizer.encode(text)
    if not ids:
        if tokenizer.eot_id is None:
            raise ConfigError(f"{model} has no end-of-text token to start from: give a --prompt")
        ids = [tokenizer.eot_id]
    stop_ids = set(checkpoint.stop_ids)
    if tokenizer.eot_id is not None:
        stop_ids.add(tokenizer.eot_id)
    decoder = tokenizer.stream_decoder(skip_special=True)
    sys.stdout.write(text)
    sys.stdout.flush()
    began = time.perf_counter()
    first = None
    count = 0
    for token in generate(network, ids, params, stop_ids=stop_ids, num_ids=tokenizer.vocab_size):
        first = first or time.perf_counter()
        count += 1
        sys.stdout.write(decoder.push(token.token_id))
        sys.stdout.flush()
    sys.stdout.write(decoder.finish() + "\n")
    sys.stdout.flush()
    _report(count, len(ids), began, first, params.seed)


def _report(count: int, prompt: int, began: float, first: float | None, seed: int) -> None:
    """Say on standard error how fast it went: time to first token, then tokens a second."""
    import sys
    import time

    if first is None:
        return
    rest = time.perf_counter() - first
    speed = f", then {(count - 1) / rest:,.0f} tok/s" if count > 1 and rest > 0 else ""
    print(
        f"[{prompt} prompt tokens, {count} written; first after {1000 * (first - began):,.0f} ms"
        f"{speed}; seed {seed}]",
        file=sys.stderr,
    )
