"""All that a tokenizer.json says beside the vocabulary, the merges and the added tokens."""

from dataclasses import dataclass, field

from mlxgpt.text.pipeline.decoders import ByteFallback, ByteLevel, Decoder, Fuse
from mlxgpt.text.pipeline.normalizers import Normalizer
from mlxgpt.text.pipeline.post_processors import PostProcessor
from mlxgpt.text.pipeline.pre_tokenizers import PreTokenizer, byte_level


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What happens to text before BPE, to ids after it, and to ids on the way back."""

    normalizers: tuple[Normalizer, ...] = ()
    pre_tokenizer: PreTokenizer
    post_processor: PostProcessor = field(default_factory=PostProcessor)
    decoder: Decoder
    unk_token: str | None = None
    """Kept for other programs: here every text has ids without it."""
    fuse_unk: bool = False
    """Kept likewise."""
    missing_bytes: bytes = b""
    """Bytes that a byte-level vocabulary lacks; in the model their ids are the last ones."""


def byte_level_pipeline(pattern: str) -> Pipeline:
    """Return that of a byte-level tokenizer trained here, whose words are cut by `pattern`.

    Raises `Unsupported` for a regular expression that other programs would read differently.
    """
    return Pipeline(pre_tokenizer=byte_level(pattern), decoder=Decoder([ByteLevel()]))


def character_pipeline() -> Pipeline:
    """Return that of a character tokenizer trained here, which leaves text whole."""
    return Pipeline(
        pre_tokenizer=PreTokenizer(byte_level=False), decoder=Decoder([ByteFallback(), Fuse()])
    )
