"""str -> ids -> str: tokenizers, their training and their files. Never imports MLX."""

from mlxgpt.text.border_tokens import END_OF_TEXT
from mlxgpt.text.bpe.splitting import PATTERNS, pattern_name
from mlxgpt.text.compression import Compression, measure_compression
from mlxgpt.text.files.gguf_reading import tokenizer_from_gguf
from mlxgpt.text.stream_decoder import StreamDecoder
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.tokenizer import Tokenizer
from mlxgpt.text.training import train_bpe, train_char

__all__ = [
    "END_OF_TEXT",
    "PATTERNS",
    "Compression",
    "StreamDecoder",
    "Tokenizer",
    "measure_compression",
    "pattern_name",
    "repair_surrogates",
    "tokenizer_from_gguf",
    "train_bpe",
    "train_char",
]
