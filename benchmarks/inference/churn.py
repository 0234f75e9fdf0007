"""Does a cache that has seen much coming and going get slower?

Requests of heavy-tailed lengths join and leave, 10,000 in all, with tokens made up instead of
computed: that is what an hour of service does to the places of blocks. From time to time a step of
the texts that run then is timed with a real network, beside one of the same texts in a new cache.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import mlx.core as mx

from benchmarks.harness import print_conditions, show
from mlxgpt import seeding
from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine.scheduler import Scheduler
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.network import network_for
from mlxgpt.infer.paged import Blocks, BlockTable, Pool, PrefixIndex, StepRow, step_attention
from mlxgpt.model import GPT, GPTConfig, init_weights

ROWS = 32
BLOCK = 16
ROUNDS = 15


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.churn")
    parser.add_argument("--joins", type=int, default=10_000)
    parser.add_argument("--blocks", type=int, default=2048)
    parser.add_argument("--looks", type=int, default=8)
    chosen = parser.parse_args(arguments)
    print_conditions()
    # The attention of SmolLM2-135M, in fewer layers.
    config = GPTConfig(
        n_layer=6, n_embd=576, n_head=9, n_kv_head=3, max_seq_len=4096, vocab_size=512
    )
    model = GPT(config)
    init_weights(model, 0)
    rows = []
    for sharing in (False, True):
        blocks = Blocks(BLOCK, chosen.blocks)
        scheduler = Scheduler(
            blocks,
            PrefixIndex(blocks) if sharing else None,
            max_num_seqs=ROWS,
            max_step_tokens=512,
            window=4096,
        )
        ratios = []
        for _ in range(chosen.looks):
            _serve(scheduler, chosen.joins // chosen.looks, seed=len(ratios))
            tables = [text.table for text in scheduler.decoding()]
            fresh = Blocks(BLOCK, chosen.blocks)
            new = [BlockTable() for _ in tables]
            for text, table in zip(scheduler.decoding(), new, strict=True):
                fresh.append(table, text.table.length, text.longest)
            ratios.append(_ratio(model, (blocks, tables), (fresh, new)))
        rows.append(
            (
                "with a full prefix index" if sharing else "without sharing",
                f"{chosen.joins:,}",
                f"{statistics.median(ratios):.2f}",
                f"{max(ratios):.2f}",
            )
        )
    headings = ("cache", "joins", "step, times a new cache's", "worst look")
    show(f"after churn, up to {ROWS} texts at once, {chosen.blocks} blocks", headings, rows)
    return 0


def _serve(scheduler: Scheduler, joins: int, seed: int) -> None:
    """Let so many requests join, each as soon as there is a place; tokens are made up."""
    rng = seeding.generator(seed, "benchmark-churn")
    left = joins
    while left:
        while left and len(scheduler.running) + len(scheduler.waiting) < ROWS:
            prompt = int(min(max(rng.lognormal(4.5, 1.0), 8), 1500))
            tokens = int(min(max(rng.lognormal(3.7, 0.9), 8), 256))
            ids = rng.integers(0, 512, prompt).tolist()
            scheduler.add(
                Text(left, 0, prompt, ids, SamplingParams(max_tokens=tokens, temperature=0))
            )
            left -= 1
        for row in scheduler.schedule({})[0]:
            text = row.sequence
            ended = text.generated + 1 >= text.params.max_tokens or rng.random() < 0.01
            scheduler.commit(row, [7] if row.wants_logits else [], row.wants_logits and ended)


def _ratio(model: GPT, *caches: tuple[Blocks, list[BlockTable]]) -> float:
    """Return the time of a step in the first cache over that in the second, medians in turn."""
    network = network_for(model)
    pools = []
    for blocks, _ in caches:
        pool = Pool.for_model(model, BLOCK)
        pool.grow(blocks.segments)
        pools.append(pool)
    seconds: list[list[float]] = [[], []]
    for i in range(ROUNDS + 2):
        for (_, tables), pool, times in zip(caches, pools, seconds, strict=True):
            began = time.perf_counter()
            rows = [StepRow(table, 1) for table in tables]
            every = mx.arange(len(rows), dtype=mx.int32)
            mx.eval(network(every, step_attention(pool, BLOCK, rows), every))
            if i >= 2:
                times.append(time.perf_counter() - began)
    used, new = (statistics.median(times) for times in seconds)
    return used / new


if __name__ == "__main__":
    sys.exit(main())
