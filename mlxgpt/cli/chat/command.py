"""`mlxgpt chat`: what was typed -> a conversation with a model."""

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


def chat(
    model: ModelName,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model should be.")
    ] = None,
    chat_template: TemplateFile = None,
    adapter: AdapterFolder = None,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 1024,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    stop: StopTexts = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same answers. [a new one]")
    ] = None,
    draft: Draft = None,
    num_draft_tokens: NumDraftTokens = None,
    kv_memory: KVMemory = None,
    stats: Annotated[
        bool | None,
        typer.Option("--stats/--no-stats", help="A line about speed.  [in a terminal]"),
    ] = None,
) -> None:
    """Talk with a model that remembers what was said."""
    if num_draft_tokens is not None and draft is None:
        raise ConfigError("--num-draft-tokens has no effect without --draft")
    if tokens < 1:
        raise ConfigError(f"--tokens must be at least 1 for an answer; got {tokens}")
    memory = None if kv_memory is None else parse_size(kv_memory, "--kv-memory")
    stops = stop_texts(stop)
    said = None if system is None else given_text(system)
    import_heavy("mlxgpt.checkpoint", "mlxgpt.infer.engine.engine")
    import secrets
    import sys

    from mlxgpt.cli.acceleration import Acceleration, WriterPlan
    from mlxgpt.cli.chat.conversation import Conversation
    from mlxgpt.cli.chat.entries import Entries, piped_line, terminal_line, use_readline
    from mlxgpt.cli.chat.session import ChatSession
    from mlxgpt.cli.opened_model import OpenedModel, seen_at_once
    from mlxgpt.cli.prompt import ChatForm
    from mlxgpt.infer.sampling import SamplingParams

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
        seed=secrets.randbelow(2**31) if seed is None else seed,
    )
    speed = Acceleration(draft=draft, num_draft_tokens=num_draft_tokens, kv_memory=memory)
    speed.settings()  # refuses at once what makes no sense
    opened = OpenedModel(model, adapter)
    form = ChatForm(opened, chat_template)
    conversation = Conversation(said)
    form.ids(conversation.messages("A question."))  # before the weights: does it take this at all?
    plan = WriterPlan(speed, model, opened.checkpoint, opened.tokenizer)
    network = opened.load()
    interactive = sys.stdin is not None and sys.stdin.isatty()
    session = ChatSession(
        lambda: plan.writer(network),
        form,
        params,
        conversation,
        context=seen_at_once(network),
        interactive=interactive,
        report=sys.stderr.isatty() if stats is None else stats,
    )
    if interactive:
        use_readline()
        print(f"{model}: /help says what there is, Ctrl-D leaves", file=sys.stderr)
    session.run(Entries(terminal_line if interactive else piped_line))
