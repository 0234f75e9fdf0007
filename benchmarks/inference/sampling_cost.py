"""`python -m benchmarks.inference.sampling_cost`: logits -> ids, and mlx-lm's way.

mlx-lm's sampler takes log-probabilities, so that its time includes their making, as in its own
loop. Both choose for all rows at once, with one setting.
"""

import argparse
import sys
from importlib.util import find_spec
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.harness import Case, measure, print_conditions, show
from mlxgpt.infer.sampling import Context, SamplingParams, choose, draw, next_logprobs, uniform

VOCAB = 49152
PEAKED, FLAT = 3.2, 1.0
"""Spreads of the logits: for an entropy of some 4 nats, where about 100 tokens have the mass of
top-p, and of 10, where it takes half of the vocabulary."""
CASES: dict[str, tuple[dict[str, Any], float]] = {
    "none": ({}, PEAKED),
    "top_k 40": ({"top_k": 40}, PEAKED),
    "top_p .9": ({"top_p": 0.9}, PEAKED),
    "top_p .9, flat": ({"top_p": 0.9}, FLAT),
}
TEMPERATURE = 0.8


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.sampling_cost")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    chosen = parser.parse_args()
    if not find_spec("mlx_lm"):
        print("needs mlx-lm: pip install mlx-lm", file=sys.stderr)
        return 2
    print_conditions()
    lines = [
        (str(rows), name, *_race(rows, name, chosen.rounds))
        for rows in chosen.rows
        for name in CASES
    ]
    headings = ("rows", "filter", "greedy", "distribution", "draw", "both", "mlx-lm / both")
    note = "Times in units of mlx-lm's argmax of one row; the last column above 1 is for us."
    show(f"choosing a token, V = {VOCAB}", headings, lines, note)
    return 0


def _race(rows: int, name: str, rounds: int) -> tuple[str, ...]:
    from mlx_lm.sample_utils import make_sampler

    rng = np.random.Generator(np.random.Philox(key=rows))
    filters, spread = CASES[name]
    logits = mx.array((spread * rng.standard_normal((rows, VOCAB))).astype(np.float32))
    setting = SamplingParams(temperature=TEMPERATURE, **filters)
    contexts = [Context(setting, [], [])] * rows
    greedy = [Context(SamplingParams(temperature=0), [], [])] * rows
    at = [uniform(SamplingParams(seed=i), "sample", 0) for i in range(rows)]
    sampler = make_sampler(temp=TEMPERATURE, **filters)
    logprobs = next_logprobs(logits, contexts)
    mx.eval(logits, logprobs)
    repeats = max(32 // rows, 1)

    def case(title: str, run: Any) -> Case:
        def work() -> None:
            for _ in range(repeats):
                mx.eval(run())

        return Case(title, work, float(rows * repeats))

    def theirs() -> mx.array:
        return sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True))

    figures = measure(
        f"{rows} rows, filter: {name}",
        [
            case("mlx-lm", theirs),
            case("both", lambda: choose(logits, contexts, at)),
            case("distribution", lambda: next_logprobs(logits, contexts)),
            case("draw", lambda: draw(logprobs, at)),
            case("greedy", lambda: choose(logits, greedy, at)),
            case("one argmax", lambda: mx.argmax(logits[:1], axis=-1)),
        ],
        unit="rows",
        rounds=rounds,
        warmup=1,
    )
    mlx_lm, both, distribution, drawing, argmax, unit = (f.median / repeats for f in figures)
    times = (f"{x / unit:.1f}" for x in (argmax, distribution, drawing, both))
    return (*times, f"{mlx_lm / both:.2f}")


if __name__ == "__main__":
    sys.exit(main())
