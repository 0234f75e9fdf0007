"""Requests as they come: prompts, lengths and times of arrival."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.inference.subjects import Subject
from mlxgpt import seeding


@dataclass(frozen=True)
class Arrival:
    """One request of a workload."""

    prompt: list[int]
    tokens: int
    """How many tokens are to be written."""
    at: float = 0.0
    """Seconds after the beginning."""


def equal(subject: Subject, count: int, prompt: int, tokens: int) -> list[Arrival]:
    """Return requests of one length, all at once."""
    return [Arrival(subject.prompt(prompt, seed=i), tokens) for i in range(count)]


def heavy_tailed(subject: Subject, count: int, seconds: float) -> list[Arrival]:
    """Return requests of 8 to 1,500 prompt and 8 to 256 new tokens (log-normal, most are short),
    arriving one by one at random moments within about `seconds`."""
    rng = seeding.generator(0, "benchmark-arrivals")
    prompts = np.clip(rng.lognormal(np.log(90), 1.2, count), 8, 1500).astype(int)
    tokens = np.clip(rng.lognormal(np.log(40), 0.9, count), 8, 256).astype(int)
    times = np.cumsum(rng.exponential(seconds / count, count))
    return [
        Arrival(subject.prompt(int(p), seed=i), int(t), float(at))
        for i, (p, t, at) in enumerate(zip(prompts, tokens, times, strict=True))
    ]


def sharing(subject: Subject, count: int, prefix: int, own: int, tokens: int) -> list[Arrival]:
    """Return requests that begin with the same `prefix` tokens and go on with their own."""
    begin = subject.prompt(prefix, seed=1000)
    return [Arrival(begin + subject.prompt(own, seed=i), tokens) for i in range(count)]


def repetitive(subject: Subject, count: int, prompt: int, tokens: int) -> list[Arrival]:
    """Return requests whose prompt repeats one sentence, which the model then goes on with."""
    sentence = subject.tokenizer.encode(" The quick brown fox jumps over the lazy dog.")
    whole = (sentence * (prompt // len(sentence) + 2))[: prompt + count]
    return [Arrival(whole[i : i + prompt], tokens) for i in range(count)]


def total_tokens(arrivals: Sequence[Arrival]) -> int:
    """Return how many tokens are to be written in all."""
    return sum(a.tokens for a in arrivals)
