"""Documents and a tokenizer -> how many bytes of text one token stands for."""

from collections.abc import Iterable
from dataclasses import dataclass

from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What was measured: UTF-8 bytes of text and the tokens that they became."""

    num_bytes: int
    num_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes a token; 0 where there was no text."""
        return self.num_bytes / self.num_tokens if self.num_tokens else 0.0


def measure_compression(
    tokenizer: Tokenizer, documents: Iterable[str], most_characters: int = 4_000_000
) -> Compression:
    """Encode the first `most_characters` of the documents, without special tokens, and count."""
    num_bytes = num_tokens = 0
    left = most_characters
    for document in documents:
        text = repair_surrogates(document[:left])
        num_bytes += len(text.encode("utf-8"))
        num_tokens += len(tokenizer.encode(text))
        left -= len(text)
        if left <= 0:
            break
    return Compression(num_bytes=num_bytes, num_tokens=num_tokens)
