"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all of the short ones."""

import sys

from benchmarks import (
    compression,
    gqa_memory,
    kv_cache,
    shakespeare,
    tokenizer_training,
    train_step,
)
from benchmarks.harness import conditions

SHORT = {
    "train-step": train_step.main,
    "kv-cache": kv_cache.main,
    "gqa-memory": gqa_memory.main,
    "tokenizer-training": tokenizer_training.main,
    "compression": compression.main,
}
LONG = {"shakespeare": shakespeare.main}
"""Minutes each; only by name."""


def main(names: list[str]) -> int:
    known = SHORT | LONG
    if unknown := [n for n in names if n not in known]:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    facts = conditions()
    versions = ", ".join(f"{n} {v}" for n, v in facts["versions"].items())
    print(f"{facts['machine']}\n{facts['blas']}; {versions}; commit {facts['commit']}\n")
    for name in names or SHORT:
        known[name]()
    return 0


sys.exit(main(sys.argv[1:]))
