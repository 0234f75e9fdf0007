"""`mlxgpt generate`: what was typed -> one text as it is written, several, or a file of them."""

from collections.abc import Mapping
from typing import Annotated

import typer

from mlxgpt.cli.generation_options import (
    AdapterFolder,
    Draft,
    FrequencyPenalty,
    KVMemory,
    MinP,
    ModelName,
    NumDraftTokens,
    PresencePenalty,
    RepetitionPenalty,
    StopTexts,
    Temperature,
    TemplateFile,
    TopK,
    TopP,
    stop_texts,
)
from mlxgpt.cli.memory_size import parse_size
from mlxgpt.cli.shell import given_text, import_heavy
from mlxgpt.errors import ConfigError


def generate(
    model: ModelName,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Text to continue; - reads standard input.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option("--prompts", metavar="FILE", help="Many prompts: JSON, one object a line."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Results of --prompts; goes on where it ends."),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option("--max-batch", min=1, help="Texts of --prompts at once, at most.  [32]"),
    ] = None,
    num_samples: Annotated[
        int, typer.Option("--num-samples", "-n", min=1, help="Texts to write for each prompt.")
    ] = 1,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask the prompt as a question; print the answer alone.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model should be, for --chat.")
    ] = None,
    chat_template: TemplateFile = None,
    adapter: AdapterFolder = None,
    tokens: Annotated[int, typer.Option(help="Tokens to write at most.")] = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    stop: StopTexts = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The same seed writes the same text. [a new one; --prompts: 0]"),
    ] = None,
    logprobs: Annotated[
        int | None, typer.Option(help="Add to results of --prompts: of the k likeliest. [off]")
    ] = None,
    draft: Draft = None,
    num_draft_tokens: NumDraftTokens = None,
    kv_bits: Annotated[
        int | None, typer.Option("--kv-bits", help="Keep keys and values in 8 or 4 bits.  [off]")
    ] = None,
    kv_memory: KVMemory = None,
) -> None:
    """Let a model write, from one prompt or a file of them."""
    _check(
        {"--prompt": prompt, "--prompts": prompts, "--out": out, "--max-batch": max_batch}
        | {"--logprobs": logprobs, "--system": system, "--chat-template": chat_template}
        | {"--draft": draft, "--num-draft-tokens": num_draft_tokens, "--kv-bits": kv_bits}
        | {"--kv-memory": kv_memory, "--chat": chat or None}
        | {"--num-samples": num_samples if num_samples != 1 else None}
    )
    memory = None if kv_memory is None else parse_size(kv_memory, "--kv-memory")
    stops = stop_texts(stop)
    import_heavy("mlxgpt.checkpoint", "mlxgpt.infer.engine.engine")
    import secrets

    from mlxgpt.cli.acceleration import Acceleration, WriterPlan
    from mlxgpt.cli.generate.asking import Asking
    from mlxgpt.cli.generate.many import write_file
    from mlxgpt.cli.generate.single import write_texts
    from mlxgpt.cli.opened_model import OpenedModel
    from mlxgpt.cli.prompts_file import read_requests
    from mlxgpt.infer.sampling import SamplingParams

    fresh = 0 if prompts is not None else secrets.randbelow(2**31)
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        max_tokens=tokens,
        stop=stops,
        seed=fresh if seed is None else seed,
        logprobs=logprobs,
        n=num_samples,
    )
    speed = Acceleration(
        draft=draft,
        num_draft_tokens=num_draft_tokens,
        kv_memory=memory,
        kv_bits=kv_bits,
        max_batch=max_batch,
    )
    speed.settings()  # refuses at once what makes no sense
    requests = None if prompts is None else read_requests(prompts, params)
    text = given_text(prompt or "")
    opened = OpenedModel(model, adapter)
    plan = WriterPlan(speed, model, opened.checkpoint, opened.tokenizer)
    asking = Asking(model=opened, chat=chat, system=system, template=chat_template)
    if prompts is None or requests is None or out is None:
        write_texts(asking, text, params, plan)
    else:
        write_file(asking, prompts, requests, out, plan)


def _check(given: Mapping[str, object]) -> None:
    """Refuse options that contradict each other, or would do nothing. `given` has None for those
    that were not typed."""

    def has(name: str) -> bool:
        return given[name] is not None

    many = has("--prompts")
    if many and has("--prompt"):
        raise ConfigError("--prompt is one prompt and --prompts a file of them; give one of both")
    if many and not has("--out"):
        raise ConfigError("--prompts needs --out FILE for the results; - is standard output")
    for option in ("--out", "--max-batch", "--logprobs"):
        if has(option) and not many:
            raise ConfigError(f"{option} has no effect without --prompts")
    for option in ("--system", "--chat-template"):
        if has(option) and not many and not has("--chat"):
            raise ConfigError(f"{option} has no effect without --chat")
    if has("--num-draft-tokens") and not has("--draft"):
        raise ConfigError("--num-draft-tokens has no effect without --draft")
    if has("--kv-bits"):
        if given["--kv-bits"] not in (4, 8):
            raise ConfigError(f"--kv-bits must be 8 or 4; got {given['--kv-bits']}")
        for option in ("--draft", "--prompts", "--num-samples", "--kv-memory"):
            if has(option):
                raise ConfigError(
                    f"--kv-bits is for one text without a draft; it does not go with {option}"
                )
