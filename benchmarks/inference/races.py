"""What a user waits for, against mlx-lm: one process, one BLAS, the same files, in turn, greedy.

Both sides must write the same tokens; where they do not, the table says so. Targets are what the
project has set itself.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.harness import Case, measure
from benchmarks.inference import peer
from benchmarks.inference.serving import Served, serve
from benchmarks.inference.subjects import Subject
from benchmarks.inference.workload import (
    Arrival,
    equal,
    heavy_tailed,
    repetitive,
    sharing,
    total_tokens,
)
from mlxgpt.infer.engine import Engine, EngineSettings
from mlxgpt.infer.speculative import NGram


@dataclass(frozen=True)
class Outcome:
    """One line of the table."""

    what: str
    ratio: float
    target: float
    same: str
    note: str = ""


def prefill(subject: Subject, rounds: int) -> Outcome:
    ratios, same = [], []
    for length in (256, 512):
        ratio, equal_tokens, _ = _race(
            subject, f"prefill {length}", equal(subject, 1, length, 1), rounds
        )
        ratios.append(ratio)
        same.append(equal_tokens)
    note = f"256: {ratios[0]:.2f}, 512: {ratios[1]:.2f}"
    return Outcome("prefill of 256 and 512 tokens", min(ratios), 1.9, ", ".join(same), note)


def decode_one(subject: Subject, rounds: int) -> Outcome:
    arrivals = equal(subject, 1, 64, 33)
    ratio, same, _ = _race(subject, "decode, one request", arrivals, rounds, decoding=True)
    return Outcome("decode, one request", ratio, 1.3, same)


def sixteen(subject: Subject, rounds: int) -> Outcome:
    arrivals = equal(subject, 16, 64, 33)
    ratio, same, _ = _race(subject, "16 requests", arrivals, rounds, decoding=True)
    return Outcome("decode, 16 requests of equal length", ratio, 1.5, same)


def tail(subject: Subject, rounds: int) -> Outcome:
    arrivals = heavy_tailed(subject, 64, seconds=15)
    ratio, same, served = _race(subject, "64 requests, heavy tail", arrivals, min(rounds, 3))
    ttft = statistics.median(served.ttft.values())
    note = f"{total_tokens(arrivals)} tokens, median ttft {ttft:.1f} s, "
    note += f"a text holds {served.worst_waste} unused slots at most"
    return Outcome("64 requests, lengths from a heavy tail, arriving", ratio, 2.4, same, note)


def prefix(subject: Subject, rounds: int) -> Sequence[Outcome]:
    arrivals = sharing(subject, 32, prefix=512, own=12, tokens=8)
    rounds = min(rounds, 3)
    shared = arrivals[0].prompt[:512]
    stock, same, _ = _race(
        subject, "32 requests sharing 512 tokens", arrivals, rounds, sharing=True
    )
    copied, also, _ = _race(
        subject,
        "the same, mlx-lm with a copied prefix cache",
        arrivals,
        rounds,
        sharing=True,
        theirs=lambda: peer.batch_after_prefix(subject.theirs, shared, arrivals),
    )
    return [
        Outcome("32 requests sharing 512 tokens", stock, 10, same),
        Outcome("the same, their cache copied by hand", copied, 3, also),
    ]


def speculation(subject: Subject, rounds: int) -> Sequence[Outcome]:
    outcomes = []
    for count, target in ((1, 3.5), (8, 2.3)):
        arrivals = repetitive(subject, count, prompt=128, tokens=64)
        ratio, same, _ = _race(
            subject, f"n-gram speculation, {count} at once", arrivals, rounds, ngram=True
        )
        name = f"n-gram speculation on repetitive text, {count} at once"
        outcomes.append(Outcome(name, ratio, target, same))
    return outcomes


def _race(
    subject: Subject,
    title: str,
    arrivals: Sequence[Arrival],
    rounds: int,
    *,
    decoding: bool = False,
    sharing: bool = False,
    ngram: bool = False,
    theirs: Callable[[], dict[int, list[int]]] | None = None,
) -> tuple[float, str, Served]:
    """Return their median time over ours, whether the tokens were the same, and our last run."""
    ours: list[Served] = []
    others: list[dict[int, list[int]]] = []

    def make_engine() -> Engine:
        settings = EngineSettings(prefix_sharing=sharing)
        return Engine(subject.ours, proposer=NGram() if ngram else None, settings=settings)

    kept = None if sharing else make_engine()  # one that shares would know the prompts by then

    def run_ours() -> float | None:
        ours.append(serve(kept or make_engine(), arrivals))
        return ours[-1].decoding if decoding else None

    def run_theirs() -> float | None:
        if theirs is not None:
            others.append(theirs())
            return None
        tokens, seconds = peer.batch(subject.theirs, arrivals)
        others.append(tokens)
        return seconds if decoding else None

    work = float(total_tokens(arrivals))
    cases = [Case("mlx-lm", run_theirs, work), Case("mlxgpt", run_ours, work)]
    figures = measure(
        f"{subject.name}: {title}", cases, unit="tokens", rounds=rounds, warmup=int(rounds > 2)
    )
    same = sum(ours[-1].tokens[i] == others[-1][i] for i in range(len(arrivals)))
    ratio = figures[0].median / figures[1].median
    return ratio, f"{same} of {len(arrivals)}", ours[-1]
