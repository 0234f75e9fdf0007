"""A file of prompts -> a file of results, many texts at a time."""

import os
import warnings
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mlxgpt.cli.acceleration import WriterPlan
from mlxgpt.cli.fingerprint import model_fingerprint, request_key
from mlxgpt.cli.generate.asking import Asking
from mlxgpt.cli.generate.progress import PromptsProgress
from mlxgpt.cli.generate.result import failure, result_lines
from mlxgpt.cli.opened_model import seen_at_once
from mlxgpt.cli.prompts_file import Request
from mlxgpt.cli.results_file import ResultsFile, ResultsInOrder
from mlxgpt.cli.writers import Writer
from mlxgpt.errors import ConfigError, DataError, MLXGPTWarning
from mlxgpt.infer.engine.completion import Completion, Output
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer

_AHEAD = 2
"""Requests that are in the writer's hands at once, times those that it writes at once."""


@dataclass(frozen=True)
class Asked:
    """A line, ready to be given to the model."""

    request: Request
    ids: array
    after: int | None
    params: SamplingParams
    key: str = ""


class Results(Protocol):
    """Where results go, those of one request at a time."""

    def put(self, results: Sequence[Mapping[str, Any]]) -> None: ...


def write_file(
    asking: Asking, file: str, requests: list[Request], out: str, plan: WriterPlan
) -> None:
    """Write the results of `requests`, read from `file`, to `out`; what is there already is kept.

    Raises `DataError` for a line that the template refuses, an `out` that holds anything else, and
    at the end if there were prompts that could not be served.
    """
    shown = "standard input" if file == "-" else file
    if out != "-" and file != "-" and os.path.exists(out) and os.path.samefile(file, out):
        raise ConfigError(f"--out and --prompts are one file, {out}")
    asking.check(requests)
    with ExitStack() as stack:
        kept = None if out == "-" else stack.enter_context(ResultsFile(Path(out), requests))
        asked = [_asked(asking, request, shown) for request in requests]
        network = asking.model.load()
        if isinstance(network, GPT):
            _tell_of_long(asked, seen_at_once(network))
        if plan.plain_because is not None:
            _note(f"prompts are written one after the other: {plan.plain_because}")
        model = model_fingerprint(network)
        drawn = model + plan.drawn_by()  # a greedy text is the same with any draft
        asked = [
            replace(
                each,
                key=request_key(drawn if each.params.temperature else model, each.ids, each.params),
            )
            for each in asked
        ]
        done = kept.resume({each.request.line: each.key for each in asked}) if kept else set[int]()
        to_do = [each for each in asked if each.request.line not in done]
        results: Results = kept or ResultsInOrder(requests)
        progress = stack.enter_context(PromptsProgress(len(asked), len(done)))
        writer = plan.writer(network)
        try:
            failed = write_all(
                writer, to_do, results, progress,
                at_once=plan.at_once, tokenizer=asking.model.tokenizer,
            )  # fmt: skip
        except KeyboardInterrupt:
            if kept is not None:
                progress.say(f"{progress.done} of {len(asked)} are done; the same command goes on")
            raise
        if kept is not None:
            kept.finish()
        progress.finish(writer.statistics)
    if failed:
        raise DataError(
            f"{failed} of {len(asked)} prompts could not be served; the 'error' of their results "
            "says why"
        )


@dataclass
class _Following:
    """A request that is being written."""

    asked: Asked
    texts: list[Completion]

    def take(self, output: Output) -> bool:
        """Take over what a step gave; return whether all texts have ended."""
        self.texts[output.choice].take(output, 0.0)
        return all(text.finish_reason is not None for text in self.texts)


def write_all(
    writer: Writer,
    asked: Sequence[Asked],
    results: Results,
    progress: PromptsProgress,
    *,
    at_once: int,
    tokenizer: Tokenizer,
) -> int:
    """Write all texts, putting each request's results as it is done; return how many failed.

    `at_once` is how many texts the writer works on: it is given a few more than that, so that it
    never waits, and not all of a large file.
    """
    waiting = deque(asked)
    following: dict[int, _Following] = {}
    failed = 0
    while waiting or following:
        while waiting and len(following) < _AHEAD * at_once:
            each = waiting.popleft()
            try:
                request = writer.add(each.ids, each.params, each.after)
            except ConfigError as e:  # it can never be served; others can
                failed += 1
                results.put([failure(each.request, each.key, len(each.ids), str(e))])
                progress.update(1, writer)
                continue
            texts = [Completion(request, i, len(each.ids)) for i in range(each.params.n)]
            following[request] = _Following(each, texts)
        done = 0
        for output in writer.step():
            one = following[output.request_id]
            if one.take(output):
                del following[output.request_id]
                which = one.asked
                results.put(
                    result_lines(which.request, which.key, which.params, one.texts, tokenizer)
                )
                done += 1
        progress.update(done, writer)
    return failed


def _asked(asking: Asking, request: Request, file: str) -> Asked:
    prompt = asking.of_request(request, file)
    params = replace(request.params, stop_ids=request.params.stop_ids | prompt.stop_ids)
    return Asked(request, array("I", prompt.ids), prompt.after, params)


def _tell_of_long(asked: Sequence[Asked], seen: int | None) -> None:
    if seen is None:
        return
    if count := sum(len(each.ids) > seen for each in asked):
        _note(f"{count} prompts are longer than the {seen:,} tokens that the model sees at a time")


def _note(text: str) -> None:
    warnings.warn(text, MLXGPTWarning, stacklevel=2)
