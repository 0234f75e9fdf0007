"""Generating with the key/value cache and without it, and mlx-lm on the same checkpoint."""

from importlib.util import find_spec
from tempfile import TemporaryDirectory

import mlx.core as mx

from benchmarks.corpora import text
from benchmarks.harness import Case, measure
from mlxgpt.checkpoint import save_model
from mlxgpt.infer import SamplingParams, generate, generate_plain
from mlxgpt.model import GPT, GPTConfig, init_weights, preset
from mlxgpt.text import train_char

TOKENS = 128


def main() -> None:
    tokenizer = train_char(text(100_000))
    fields = preset("10m") | {"max_seq_len": 512}
    model = GPT(GPTConfig(**fields, vocab_size=tokenizer.vocab_size))
    init_weights(model, 0)
    prompt = tokenizer.encode("def main():\n" * 8)
    params = SamplingParams(temperature=0, max_tokens=TOKENS)

    def cached() -> None:
        assert sum(1 for _ in generate(model, prompt, params)) == TOKENS

    def plain() -> None:
        assert sum(1 for _ in generate_plain(model, prompt, params)) == TOKENS

    cases = [Case("cached", cached, TOKENS), Case("without a cache", plain, TOKENS)]
    if find_spec("mlx_lm"):
        from mlx_lm import load
        from mlx_lm.generate import generate_step

        with TemporaryDirectory() as folder:
            save_model(folder, model, tokenizer)
            theirs, *_ = load(folder)
            mx.eval(theirs.parameters())

        def mlx_lm() -> None:
            steps = generate_step(mx.array(prompt), theirs, max_tokens=TOKENS)
            assert sum(1 for _ in steps) == TOKENS

        cases.insert(1, Case("mlx-lm", mlx_lm, TOKENS))
    measure(
        f"generation, 10m, {len(prompt)} + {TOKENS} tokens, greedy",
        cases,
        unit="tokens",
        rounds=5,
        warmup=1,
    )
