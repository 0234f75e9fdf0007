"""One forward pass of one text, against mlx-lm: `python -m benchmarks.inference.forward`.

A step as the engine takes it, without scheduling and sampling: ids, keys and values in a pool of
blocks, logits of the last token. Prefill starts from nothing; decoding is token after token.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx

from benchmarks.harness import Case, measure, print_conditions, show
from benchmarks.inference.subjects import Subject, random_10m, smollm2
from mlxgpt import load
from mlxgpt.infer import KVCache
from mlxgpt.infer.network.network import GPTNetwork, Network, network_for
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.by_device import step_attention
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow
from mlxgpt.model import GPT

SUBJECTS = {"smollm2": smollm2, "10m": random_10m}
BLOCK = 16
TARGETS = {"prefill": 1.9, "decode": 1.3}


class Text(Protocol):
    """One text on its way through a network."""

    def __call__(self, input_ids: list[int]) -> mx.array:
        """Take in ids; return the evaluated logits (V,) after the last one."""
        ...


class Paged:
    """A text in a pool that has room for `length` tokens."""

    def __init__(self, network: Network, model: GPT, length: int) -> None:
        self._network, self._pool = network, Pool.for_model(model, BLOCK)
        blocks = -(-length // BLOCK)
        self._pool.grow([blocks])
        self._table = BlockTable(list(range(blocks)))

    def __call__(self, input_ids: list[int]) -> mx.array:
        count = len(input_ids)
        self._table.length += count
        attention = step_attention(self._pool, BLOCK, [StepRow(self._table, count)])
        logits = self._network(mx.array(input_ids), attention, mx.array([count - 1]))
        mx.eval(logits, self._pool.arrays)
        return logits[0]


class Contiguous:
    """A text in mlxgpt's own contiguous cache."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._cache = KVCache(model.config.n_layer, model.config.context)

    def __call__(self, input_ids: list[int]) -> mx.array:
        features = self._model.features(mx.array([input_ids]), self._cache)[:, -1]
        logits = self._model.head(features)
        mx.eval(logits)
        return logits[0]


class MLXLM:
    """A text in mlx-lm."""

    def __init__(self, model: Any) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._model, self._cache = model, make_prompt_cache(model)

    def __call__(self, input_ids: list[int]) -> mx.array:
        logits = self._model(mx.array([input_ids]), cache=self._cache)[0, -1]
        mx.eval(logits)
        return logits


def opened(name: str) -> AbstractContextManager[Subject]:
    """Return a known subject, or the model in a directory. Raises `LookupError`."""
    if name in SUBJECTS:
        return SUBJECTS[name]()
    if not Path(name).is_dir():
        raise LookupError(f"{name} is neither of {', '.join(SUBJECTS)} nor a directory")
    from mlx_lm import load as load_theirs

    ours, tokenizer = load(name)
    theirs, *_ = load_theirs(name)
    mx.eval(theirs.parameters())
    return nullcontext(Subject(Path(name).name, ours, theirs, tokenizer))


def ways(subject: Subject, length: int) -> dict[str, Callable[[], Text]]:
    """Return name -> how to start a text. The GPT itself runs with weights as they came."""
    fused, plain = network_for(subject.ours), _copy(subject.ours)
    gpt = GPTNetwork(plain)
    return {
        "mlx-lm": lambda: MLXLM(subject.theirs),
        "GPT over KVCache": lambda: Contiguous(plain),
        "GPTNetwork over a pool": lambda: Paged(gpt, plain, length),
        f"{type(fused).__name__}, as the engine": lambda: Paged(fused, subject.ours, length),
    }


def race(
    subject: Subject,
    begun: Mapping[str, Callable[[], Text]],
    context: int,
    tokens: int,
    rounds: int,
) -> tuple[str, ...]:
    """Measure a prefill of `context` tokens, or `tokens` more after it; return a line of ratios."""
    what = f"decode after {context}" if tokens else f"prefill {context}"
    ids = subject.prompt(context + tokens)
    last: dict[str, mx.array] = {}

    def run(name: str, start: Callable[[], Text]) -> Callable[[], float]:
        def once() -> float:
            text = start()
            began = time.perf_counter()
            logits = text(ids[:context])
            if tokens:
                began = time.perf_counter()
                for token in ids[context:]:
                    logits = text([token])
            last[name] = logits
            return time.perf_counter() - began

        return once

    cases = [Case(name, run(name, start), tokens or context) for name, start in begun.items()]
    title = f"{subject.name}: {what}"
    figures = measure(title, cases, unit="tokens", rounds=rounds, warmup=1)
    # Round by round, since the machine may be busier in one than in another.
    ratios = [
        statistics.median(a / b for a, b in zip(figures[0].seconds, f.seconds, strict=True))
        for f in figures[1:]
    ]
    theirs = last["mlx-lm"]
    apart = max(mx.abs(x - theirs).max().item() for x in last.values())
    return (what, *(f"{ratio:.2f}" for ratio in ratios), f"{apart:.1e}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.forward")
    parser.add_argument("--model", default="smollm2", help="smollm2, 10m, or a directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, nargs="*", default=[256, 512])
    parser.add_argument("--decode", type=int, nargs="*", default=[64], help="context before")
    parser.add_argument("--tokens", type=int, default=16, help="tokens to decode")
    chosen = parser.parse_args(arguments)
    print_conditions()
    with opened(chosen.model) as subject:
        cases = [(n, 0) for n in chosen.prefill] + [(n, chosen.tokens) for n in chosen.decode]
        begun = ways(subject, max((sum(case) for case in cases), default=1))
        table = [race(subject, begun, *case, chosen.rounds) for case in cases]
    goals = " and ".join(f"{ratio:g} in {what}" for what, ratio in TARGETS.items())
    headings = ["times mlx-lm", *list(begun)[1:], "largest difference of a logit"]
    show(subject.name, headings, table, note=f"The engine aims at {goals}.")


def _copy(model: GPT) -> GPT:
    copy = GPT(model.config)
    copy.set_weights({name: mx.contiguous(w) + 0 for name, w in model.weights().items()})
    mx.eval(copy.parameters())
    return copy


if __name__ == "__main__":
    main()
