"""The tables of the PyTorch reference, on models trained here: cache, memory, batching, drafts.

`python -m benchmarks.inference.tables --runs DIR` trains a target of 0.8 M parameters (4 layers)
and a draft of 58 K (1 layer) on tiny Shakespeare into DIR, or takes those that lie there. The
reference's figures: 4.8 times by the cache at 480 tokens, 7.4 times by 16 requests at once, 1.68
times by 6 guesses, of which 64, 50, 44 and 32 % are kept at 2, 4, 6 and 8.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from benchmarks.harness import Case, measure, print_conditions, show
from mlxgpt import load
from mlxgpt.infer import KVCache, SamplingParams, generate, generate_plain
from mlxgpt.infer.engine import Engine, EngineSettings
from mlxgpt.infer.paged import Pool
from mlxgpt.infer.speculative import DraftModel
from mlxgpt.model import GPT, GPTConfig, init_weights, kv_bytes_per_token
from mlxgpt.text import Tokenizer

CONFIG = Path(__file__).parents[2] / "configs" / "shakespeare-char.yaml"
DRAFT = ("n_layer=1", "n_embd=64", "n_head=4", "intermediate_size=192", "max_seq_len=128")
CONTEXT = 512
SPEAKERS = ("ROMEO", "JULIET", "KING", "BRUTUS")
WRITTEN = 110
"""Tokens of a text; with its prompt it stays within the context that the models were trained on."""
REFERENCE = {"cache at 480": 4.8, "batch of 16": 7.4, "6 guesses": 1.68}
ACCEPTED = {2: 0.64, 4: 0.50, 6: 0.44, 8: 0.32}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.tables")
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    print_conditions()
    trained, tokenizer = _trained(chosen.runs / "target", ())
    draft, _ = _trained(chosen.runs / "draft", DRAFT)
    target = _longer(trained)
    cache(target, chosen.rounds)
    memory()
    batching(target, chosen.rounds)
    prompts = [tokenizer.encode(f"{name}:\nI") for name in SPEAKERS]
    speculation(trained, draft, prompts, chosen.rounds)
    return 0


def cache(model: GPT, rounds: int) -> None:
    prompt = list(range(16))
    for tokens in (32, 128, 256, 480):
        params = SamplingParams(temperature=0, max_tokens=tokens)

        def plain(params: SamplingParams = params) -> None:
            assert sum(1 for _ in generate_plain(model, prompt, params)) == params.max_tokens

        def cached(params: SamplingParams = params) -> None:
            assert sum(1 for _ in generate(model, prompt, params)) == params.max_tokens

        cases = [Case("without a cache", plain, tokens), Case("cached", cached, tokens)]
        figures = measure(f"{tokens} new tokens", cases, unit="tokens", rounds=rounds, warmup=1)
        print(f"the cache is {figures[0].median / figures[1].median:.2f} times faster\n")


def memory() -> None:
    rows = []
    for kv_heads in (8, 4, 2, 1):
        config = GPTConfig(n_layer=4, n_embd=128, n_head=8, n_kv_head=kv_heads, vocab_size=65)
        model = GPT(config)
        init_weights(model, 0)
        contiguous = KVCache(config.n_layer)
        mx.eval(model.features(mx.zeros((1, 512), dtype=mx.int32), contiguous))
        pool = Pool.for_model(model, 16)
        rows.append(
            (
                str(kv_heads),
                f"{kv_bytes_per_token(config):,}",
                f"{contiguous.nbytes:,}",
                f"{pool.bytes_per_block:,}",
            )
        )
    headings = ("key/value heads", "bytes a token", "contiguous cache, 512 tokens", "paged block")
    show("cache memory, 4 layers, 8 query heads of 16, float32", headings, rows)


def batching(model: GPT, rounds: int) -> None:
    cases = []
    for count in (1, 2, 4, 8, 16):

        def run(count: int = count) -> float:
            settings = EngineSettings(prefix_sharing=False)
            engine = Engine(model, settings=settings)
            prompts = [[i, *range(15)] for i in range(count)]
            done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=128))
            return done[-1].seconds

        cases.append(Case(f"{count} at once", run, 128 * count))
    figures = measure("batching, 16 + 128 tokens", cases, unit="tokens", rounds=rounds)
    one = figures[0].case.work / figures[0].median
    for figure in figures[1:]:
        print(
            f"{figure.case.name}: {figure.case.work / figure.median / one:.2f} times the tokens/s"
        )
    print()


def speculation(target: GPT, draft: GPT, prompts: list[list[int]], rounds: int) -> None:
    """One text after the other, so that it is the time of a single request."""
    rows = []
    for temperature in (0.0, 0.8):
        params = SamplingParams(temperature=temperature, max_tokens=WRITTEN, seed=1)
        accepted: dict[int, float] = {}

        def plain(params: SamplingParams = params) -> None:
            engine = Engine(target)
            for prompt in prompts:
                engine.generate([prompt], params)

        work = WRITTEN * len(prompts)
        cases = [Case("without guesses", plain, work)]
        for count in ACCEPTED:

            def guessing(
                count: int = count,
                params: SamplingParams = params,
                accepted: dict[int, float] = accepted,
            ) -> None:
                settings = EngineSettings(num_draft_tokens=count, adapt_draft=False)
                engine = Engine(target, proposer=DraftModel(draft), settings=settings)
                for prompt in prompts:
                    engine.generate([prompt], params)
                accepted[count] = engine.statistics.acceptance_rate or 0.0

            cases.append(Case(f"{count} guesses", guessing, work))
        title = f"speculative decoding, temperature {temperature}"
        figures = measure(title, cases, unit="tokens", rounds=rounds)
        for figure, count in zip(figures[1:], ACCEPTED, strict=True):
            speedup = figures[0].median / figure.median
            rows.append(
                (
                    str(temperature),
                    str(count),
                    f"{speedup:.2f}",
                    f"{accepted[count]:.0%}",
                    f"{ACCEPTED[count]:.0%}",
                )
            )
    headings = ("temperature", "guesses", "times faster", "kept", "reference keeps")
    show("speculative decoding, 0.8 M with a draft of 58 K", headings, rows)


def _trained(directory: Path, changes: Sequence[str]) -> tuple[GPT, Tokenizer]:
    if not directory.exists():
        command = [sys.executable, "-m", "mlxgpt", "train", "-c", str(CONFIG)]
        command += ["--out", str(directory)]
        if text := os.environ.get("MLXGPT_SHAKESPEARE"):
            command += ["--corpus", text]
        for change in changes:
            command += ["--set", f"model.{change}"]
        subprocess.run(command, check=True)
    return load(directory)


def _longer(model: GPT) -> GPT:
    """Return the same weights with a context in which all of the tables fit."""
    longer = GPT(replace(model.config, max_seq_len=CONTEXT))
    longer.set_weights(model.weights())
    return longer


if __name__ == "__main__":
    sys.exit(main())
