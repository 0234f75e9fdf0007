"""The `decoder` of a tokenizer.json -> steps, or the name of one that is not ours."""

from typing import Any

from mlxgpt.text.files.fields import Fields, flattened
from mlxgpt.text.files.normalizers import read_replace
from mlxgpt.text.files.pre_tokenizers import read_metaspace
from mlxgpt.text.pipeline.decoders import (
    ByteFallback,
    ByteLevel,
    Decoder,
    Fuse,
    Metaspace,
    Step,
    Strip,
)
from mlxgpt.text.pipeline.unsupported import Unsupported


def read_decoder(value: Any, *, byte_level: bool) -> Decoder:
    """Return the steps for a model over bytes, or for one over characters.

    Raises `TokenizerError` for what is damaged, else `Unsupported`.
    """
    steps: list[Step] = flattened(value, "decoder", "decoders", _read)
    if value is None and byte_level:
        steps = [ByteLevel()]  # the library joins the names of the tokens then, which is no text
    decoder = Decoder(steps)
    if decoder.byte_level is not byte_level or not steps:
        names = [step.to_json()["type"] for step in decoder.steps]
        raise Unsupported(f"decoder {', '.join(names) or None} for this model")
    return decoder


def _read(fields: Fields) -> list[Step]:
    match fields.type:
        case "ByteLevel":
            for name in ("add_prefix_space", "trim_offsets"):
                fields.flag(name)
            fields.flag("use_regex", True)
            return [ByteLevel()]
        case "ByteFallback":
            return [ByteFallback()]
        case "Fuse":
            return [Fuse()]
        case "Replace":
            return [read_replace(fields)]
        case "Strip":
            return [Strip(fields.character("content"), fields.count("start"), fields.count("stop"))]
        case "Metaspace":
            return [Metaspace(*read_metaspace(fields))]
        case other:
            raise Unsupported(f"decoder '{other}'")
