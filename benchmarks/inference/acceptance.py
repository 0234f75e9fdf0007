"""How many guesses are kept at temperature 0.8: ours, mlx-lm's, and what the two models allow.

`python -m benchmarks.inference.acceptance --runs DIR`, with the models of `tables`.

A guess that is looked at can be kept with probability sum(min(p, q)) at most (Leviathan et al.,
2023, corollary 3.6); p and q are taken from both models over the finished texts.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.harness import print_conditions, show
from mlxgpt import load
from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine import Engine, EngineSettings
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.speculative import Draft, DraftModel
from mlxgpt.model import GPT

TEMPERATURE = 0.8
GUESSES = 4
TOKENS = 100
"""Within the context of both models, prompt included."""


class Watched:
    """A draft model, and at which lengths of which texts it was asked."""

    draws = True

    def __init__(self, model: GPT) -> None:
        self._drafts = DraftModel(model)
        self.num_ids, self.nbytes = self._drafts.num_ids, self._drafts.nbytes
        self.asked: dict[int, list[tuple[int, int]]] = {}

    def propose(self, wanted: Mapping[Text, int]) -> dict[Text, Draft]:
        drafts = self._drafts.propose(wanted)
        for text, draft in drafts.items():
            length = len(text.token_ids)
            self.asked.setdefault(text.request_id, []).append((length, len(draft.token_ids)))
        return drafts

    def forget(self, sequence: Text) -> None:
        self._drafts.forget(sequence)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.acceptance")
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--texts", type=int, default=64)
    chosen = parser.parse_args(arguments)
    print_conditions()
    target, tokenizer = load(chosen.runs / "target")
    draft, _ = load(chosen.runs / "draft")
    names = ("ROMEO", "JULIET", "KING", "First Citizen", "GREMIO", "BRUTUS", "Nurse", "YORK")
    texts = [f"{names[i % 8]}:\n{'IWTAM'[i // 8 % 5]}" for i in range(chosen.texts)]
    prompts = [tokenizer.encode(text) for text in texts]
    rows = [_ours(target, draft, prompts), _theirs(chosen.runs, prompts)]
    headings = ("", "looked at", "kept", "+-", "sum(min(p, q)) there")
    show(f"guesses kept, temperature {TEMPERATURE}, {GUESSES} at a time", headings, rows)
    return 0


def _ours(target: GPT, draft: GPT, prompts: Sequence[list[int]]) -> tuple[str, ...]:
    watched = Watched(draft)
    settings = EngineSettings(num_draft_tokens=GUESSES, adapt_draft=False)
    engine = Engine(target, proposer=watched, settings=settings)
    params = [
        SamplingParams(temperature=TEMPERATURE, max_tokens=TOKENS, seed=i)
        for i in range(len(prompts))
    ]
    looked = kept = 0
    possible = []
    for done in engine.generate(prompts, params):
        ids = prompts[done.request_id] + done.token_ids
        overlap = _overlap(target, draft, ids)
        asked = watched.asked[done.request_id]
        ends = [length for length, _ in asked[1:]] + [len(ids)]
        for (length, guesses), end in zip(asked, ends, strict=True):
            accepted = min(end - length - 1, guesses)
            places = range(length, length + min(accepted + 1, guesses))
            looked += len(places)
            kept += accepted
            possible += [overlap[p - 1] for p in places if p < len(ids)]
    return _row("mlxgpt", looked, kept, f"{sum(possible) / len(possible):.3f}")


def _theirs(runs: Path, prompts: Sequence[list[int]]) -> tuple[str, ...]:
    import mlx_lm
    from mlx_lm.generate import speculative_generate_step
    from mlx_lm.sample_utils import make_sampler

    target, *_ = mlx_lm.load(str(runs / "target"))
    draft, *_ = mlx_lm.load(str(runs / "draft"))
    looked = kept = 0
    mx.random.seed(0)
    for prompt in prompts:
        steps: Any = speculative_generate_step(
            mx.array(prompt),
            target,
            draft,
            num_draft_tokens=GUESSES,
            max_tokens=TOKENS,
            sampler=make_sampler(temp=TEMPERATURE),
        )
        run = 0
        for _, _, drafted in steps:
            if drafted:
                run += 1
                continue
            looked += min(run + 1, GUESSES)
            kept += run
            run = 0
    return _row("mlx-lm", looked, kept, "")


def _overlap(target: GPT, draft: GPT, ids: list[int]) -> list[float]:
    """Return sum(min(p, q)) for what follows each token."""
    text = mx.array([ids])
    p, q = (
        mx.softmax(model(text)[0].astype(mx.float32) / TEMPERATURE, axis=-1, precise=True)
        for model in (target, draft)
    )
    return [float(x) for x in mx.minimum(p, q).sum(axis=-1).tolist()]  # type: ignore[union-attr]


def _row(name: str, looked: int, kept: int, possible: str) -> tuple[str, ...]:
    share = kept / looked
    error = 2 * math.sqrt(share * (1 - share) / looked)
    return name, f"{looked:,}", f"{share:.3f}", f"{error:.3f}", possible


if __name__ == "__main__":
    sys.exit(main())
