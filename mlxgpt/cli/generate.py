"""`mlxgpt generate`: a model and a prompt -> text, as it is written."""

from pathlib import Path
from typing import Annotated

import typer

from mlxgpt.cli.shell import given_text, import_heavy
from mlxgpt.errors import ConfigError


def generate(
    model: Annotated[
        str, typer.Argument(help="Run, model directory, .gguf file, or a model of the Hub.")
    ],
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", help="Text to continue; - reads standard input.")
    ] = "",
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask the prompt as a question; print the answer alone.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model should be, for --chat.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Jinja, for --chat.  [the model's own]")
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(metavar="DIR", help="Adapter to put on the model.")
    ] = None,
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
    for option, value in (("--system", system), ("--chat-template", chat_template)):
        if value is not None and not chat:
            raise ConfigError(f"{option} has no effect without --chat")
    import_heavy("mlxgpt.checkpoint", "mlxgpt.infer")
    import secrets
    import sys
    import time
    import warnings

    from mlxgpt.checkpoint import attach, load_model, load_tokenizer, open_checkpoint, read_adapter
    from mlxgpt.cli.prompt import chat_prompt, plain_prompt
    from mlxgpt.errors import MLXGPTWarning
    from mlxgpt.infer import SamplingParams, generate
    from mlxgpt.model import GPT
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
    tokenizer = load_tokenizer(checkpoint)
    text = repair_surrogates(given_text(prompt))
    if chat:
        asked = chat_prompt(checkpoint, tokenizer, text, system, chat_template)
    else:
        asked = plain_prompt(checkpoint, tokenizer, text)
    change = None if adapter is None else read_adapter(adapter)
    network = load_model(checkpoint)
    if change is not None:
        attach(network, change)
    decoder = tokenizer.stream_decoder(skip_special=True)
    if asked.shown:  # what follows a text keeps its space; an answer has none in front
        decoder.push(asked.ids[-1])
    if isinstance(network, GPT) and len(asked.ids) > network.config.context:
        warnings.warn(
            f"the prompt has {len(asked.ids):,} tokens; the model sees the last "
            f"{network.config.context:,} at a time",
            MLXGPTWarning,
            stacklevel=1,
        )
    sys.stdout.write(asked.shown)
    sys.stdout.flush()
    began = time.perf_counter()
    first = None
    count = 0
    for token in generate(
        network, asked.ids, params, stop_ids=asked.stop_ids, num_ids=tokenizer.vocab_size
    ):
        first = first or time.perf_counter()
        count += 1
        sys.stdout.write(decoder.push(token.token_id))
        sys.stdout.flush()
    sys.stdout.write(decoder.finish() + "\n")
    sys.stdout.flush()
    _report(count, len(asked.ids), began, first, params.seed)


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
