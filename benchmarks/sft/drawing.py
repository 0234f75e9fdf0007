"""`python -m benchmarks.sft.drawing`: how evenly the pack modes draw rows of different lengths.

Corpora of 1,000 examples, each with probability 0.8 of length 10 + floor(50 u), else 60 +
floor(340 u); 8,000 draws. In each of four bins of length: length x draws of an example, averaged
over the examples of each length and then over the lengths. CoV is the population standard
deviation of the four numbers over their mean; 0 is flat.

Then, for lengths of that kind and a million examples: the time to make each drawing, to draw the
first step, and to draw one of the steps after it.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.harness import print_conditions, show
from mlxgpt import seeding
from mlxgpt.data.sft.config import PackMode, SFTDataConfig
from mlxgpt.data.sft.drawings import drawing_for

BINS = ((10, 80), (80, 160), (160, 240), (240, 401))
DRAWS, ROWS = 8000, 8
MODES: tuple[PackMode, ...] = ("none", "sequence", "sample", "bucket")
CAPACITY = 2048
"""Places in a row of `sequence`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sft.drawing")
    parser.add_argument("--corpora", type=int, default=100)
    parser.add_argument("--examples", type=int, default=1_000_000)
    chosen = parser.parse_args()
    print_conditions()
    rows = []
    for name, draw in WAYS.items():
        bins, variation = [], []
        for seed in range(chosen.corpora):
            lengths = corpus(seed)
            found = by_bin(lengths, draw(lengths, seed))
            bins.append(found / found.mean())
            variation.append(found.std() / found.mean())
        means = np.mean(bins, axis=0)
        spread = f"{np.mean(variation):.3f} ({min(variation):.3f} - {max(variation):.3f})"
        rows.append((name, *(f"{mean:.2f}" for mean in means), spread))
    names = [f"{low}-{high - 1}" for low, high in BINS]
    headings = ("", *names, "CoV: mean (smallest - largest)")
    show(f"length x draws by bin, mean 1; {chosen.corpora} corpora", headings, rows)
    lengths = corpus(0, chosen.examples)
    times = [(mode, *(f"{1e3 * t:,.2f} ms" for t in seconds(mode, lengths))) for mode in MODES]
    headings = ("pack mode", "to make", "first step", "a later step")
    show(f"{chosen.examples:,} examples, {ROWS} rows a step, one run", headings, times)
    return 0


def seconds(mode: PackMode, lengths: Sequence[int]) -> tuple[float, float, float]:
    """Return the seconds to make a drawing, of its first step, and of a later one (median)."""
    marks = [time.perf_counter()]
    drawing = drawing_for(SFTDataConfig(train="x", pack_mode=mode), lengths, ROWS, CAPACITY, 0)
    for step in range(1001):
        marks.append(time.perf_counter())
        drawing.rows(step)
    made, first, *later = np.diff([*marks, time.perf_counter()]).tolist()
    return made, first, statistics.median(later)


def corpus(seed: int, count: int = 1000) -> list[int]:
    """Return the lengths of one corpus."""
    u = seeding.generator(seed, "known-corpus").random((count, 2))
    return [10 + int(50 * v) if p < 0.8 else 60 + int(340 * v) for p, v in u.tolist()]


def by_bin(lengths: Sequence[int], drawn: Sequence[int]) -> np.ndarray:
    """Return the four numbers."""
    counts, examples = Counter(lengths[i] for i in drawn), Counter(lengths)
    return np.array(
        [
            np.mean([n * counts[n] / examples[n] for n in examples if low <= n < high])
            for low, high in BINS
        ]
    )


def uniform(lengths: Sequence[int], seed: int) -> list[int]:
    return seeding.generator(seed, "uniform").integers(0, len(lengths), DRAWS).tolist()


def dice(lengths: Sequence[int], seed: int) -> list[int]:
    weights = 1 / np.array(lengths)
    p = weights / weights.sum()
    return seeding.generator(seed, "dice").choice(len(lengths), DRAWS, p=p).tolist()


def pack_mode(mode: PackMode) -> Callable[[Sequence[int], int], list[int]]:
    def draw(lengths: Sequence[int], seed: int) -> list[int]:
        config = SFTDataConfig(train="x", pack_mode=mode)
        drawing = drawing_for(config, lengths, ROWS, max(lengths), seed)
        drawn: list[int] = []
        step = 0
        while len(drawn) < DRAWS:
            drawn += [i for row in drawing.rows(step) for i in row]
            step += 1
        return drawn[:DRAWS]

    return draw


WAYS: dict[str, Callable[[Sequence[int], int], list[int]]] = {
    "uniform draws": uniform,
    "none": pack_mode("none"),
    "independent draws by 1 / length": dice,
    "sample": pack_mode("sample"),
    "bucket, 4 bins": pack_mode("bucket"),
}

if __name__ == "__main__":
    sys.exit(main())
