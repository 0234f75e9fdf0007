"""Training a byte-level BPE on the same documents: ours and Hugging Face's `tokenizers`."""

from importlib.util import find_spec
from typing import Any

from benchmarks.corpora import text
from benchmarks.harness import Case, measure
from mlxgpt.text import train_bpe

VOCAB, SIZE = 4096, 2_000_000


def main() -> None:
    documents = text(SIZE)
    size = sum(len(d.encode()) for d in documents)
    cases = [Case("mlxgpt, plain Python", lambda: train_bpe(documents, VOCAB), size / 1e6)]
    if find_spec("tokenizers"):
        cases.append(Case("tokenizers", lambda: hugging_face(documents, VOCAB), size / 1e6))
    measure(
        f"tokenizer training, {size / 1e6:.1f} MB, {VOCAB} ids",
        cases,
        unit="MB",
        rounds=3,
        warmup=1,
    )


def hugging_face(documents: list[str], vocab_size: int) -> Any:
    """Train the same tokenizer with the `tokenizers` library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,  # ours counts the end-of-text token
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer
