"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all of the short ones."""

import sys

from benchmarks import (
    compression,
    gqa_memory,
    kv_cache,
    shakespeare,
    train_step,
)
from benchmarks.harness import print_conditions
from benchmarks.tokenizer import __main__ as tokenizer

SHORT = {
    "train-step": train_step.main,
    "kv-cache": kv_cache.main,
    "gqa-memory": gqa_memory.main,
    "compression": compression.main,
}
LONG = {"shakespeare": shakespeare.main, "tokenizer": tokenizer.main}
"""Minutes each; only by name. `python -m benchmarks.tokenizer --help` has options."""


def main(names: list[str]) -> int:
    known = SHORT | LONG
    if unknown := [n for n in names if n not in known]:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    print_conditions()
    for name in names or SHORT:
        known[name]()
    return 0


sys.exit(main(sys.argv[1:]))
