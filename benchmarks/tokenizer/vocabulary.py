"""Samples of all texts -> the one tokenizer.json that every entrant encodes with."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.tokenizer.texts import Text
from mlxgpt.text import train_bpe


def write_vocabulary(texts: Sequence[Text], size: int, file: Path) -> str:
    """Train `size` byte-level ids with the GPT-2 split, and return the name of who trained them."""
    documents = [piece for text in texts for piece in text.sample()]
    if find_spec("tokenizers"):
        train_hugging_face(documents, size).save(str(file))
        return "tokenizers"
    train_bpe(documents, size, special_tokens=()).save(file)
    return "mlxgpt"


def train_hugging_face(documents: Sequence[str], vocab_size: int) -> Any:
    """Train the tokenizer of `train_bpe` without special tokens with the `tokenizers` library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer
