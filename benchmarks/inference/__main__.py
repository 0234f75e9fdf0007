"""`python -m benchmarks.inference`: generation against mlx-lm, with targets, and its own tables."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from benchmarks.harness import print_conditions, show
from benchmarks.inference import races
from benchmarks.inference.subjects import Subject, random_10m, smollm2

RACES: dict[str, Callable[[Subject, int], races.Outcome | Sequence[races.Outcome]]] = {
    "prefill": races.prefill,
    "decode": races.decode_one,
    "sixteen": races.sixteen,
    "tail": races.tail,
    "prefix": races.prefix,
    "ngram": races.speculation,
}
SUBJECTS = {"smollm2": smollm2, "10m": random_10m}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=RACES, default=list(RACES))
    parser.add_argument("--model", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    chosen = parser.parse_args(arguments)
    if not find_spec("mlx_lm"):
        print("needs mlx-lm: pip install mlx-lm", file=sys.stderr)
        return 2
    print_conditions()
    for model in chosen.model:
        try:
            with SUBJECTS[model]() as subject:
                _table(subject, chosen.only, chosen.rounds)
        except LookupError as e:
            print(f"{model} is left out: {e}")
    return 0


def _table(subject: Subject, names: Sequence[str], rounds: int) -> None:
    rows = []
    for name in names:
        outcomes = RACES[name](subject, rounds)
        for one in [outcomes] if isinstance(outcomes, races.Outcome) else outcomes:
            verdict = "reached" if one.ratio >= one.target else "missed"
            rows.append(
                (one.what, f"{one.ratio:.2f}", f"{one.target:g}", verdict, one.same, one.note)
            )
    headings = ("what", "times mlx-lm", "target", "", "same texts", "")
    show(f"{subject.name}, against mlx-lm in the same process", headings, rows)


if __name__ == "__main__":
    sys.exit(main())
