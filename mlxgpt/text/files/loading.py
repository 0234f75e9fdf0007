"""A tokenizer.json on disk -> its parts, or one line that says what is wrong with it.

A file that is in order but asks for something that is not implemented here comes back as it is, for
the `tokenizers` library, with the name of that part. `truncation` and `padding` are passed over:
they shape batches, not the ids of a text.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.files.bpe import (
    check_settings,
    read_byte_model,
    read_character_model,
    space_border,
)
from mlxgpt.text.files.decoders import read_decoder
from mlxgpt.text.files.fields import Fields, shown
from mlxgpt.text.files.normalizers import read_normalizers
from mlxgpt.text.files.post_processors import read_post_processor
from mlxgpt.text.files.pre_tokenizers import read_pre_tokenizer
from mlxgpt.text.files.vocabulary import check_ids, read_added_tokens
from mlxgpt.text.pipeline.normalizers import Normalizer, Replace
from mlxgpt.text.pipeline.pipeline import Pipeline
from mlxgpt.text.pipeline.pre_tokenizers import SPACE_MARKER, Metaspace, PreTokenizer
from mlxgpt.text.pipeline.unsupported import Unsupported

_ENTRIES = (
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
    "post_processor", "decoder", "model",
)  # fmt: skip


@dataclass(frozen=True)
class OwnParts:
    """A file that is implemented here."""

    model: BPEModel
    added: AddedTokens
    pipeline: Pipeline


@dataclass(frozen=True)
class LibraryParts:
    """A file for the library."""

    content: dict[str, Any]
    added: list[AddedToken]
    reason: str
    """The part that is not implemented here."""


def tokenizer_file(path: Path) -> Path:
    """Return the tokenizer.json in the directory `path`, or `path` itself."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if file != path and not file.exists():
        raise TokenizerError(f"the directory {path} holds no tokenizer.json")
    return file


def read_tokenizer(file: Path) -> OwnParts | LibraryParts:
    """Read a tokenizer.json.

    Raises `TokenizerError` with the file's name and the component, entry or place in question.
    """
    return parts_of(read_json(file), str(file))


def parts_of(content: Any, where: str) -> OwnParts | LibraryParts:
    """Return the parts of what a tokenizer.json holds; `where` names it in a `TokenizerError`."""
    try:
        return _from_json(content)
    except TokenizerError as e:
        raise TokenizerError(f"{where}: {e}") from e
    except RecursionError as e:
        raise TokenizerError(f"{where}: its parts stand too deep in each other") from e


def read_json(file: Path) -> Any:
    """Return what a JSON file holds; `TokenizerError` naming it if that cannot be read."""
    try:
        return json.loads(file.read_bytes().decode("utf-8"), object_pairs_hook=_without_doubles)
    except FileNotFoundError:
        raise TokenizerError(f"there is no tokenizer file {file}") from None
    except OSError as e:
        raise TokenizerError(f"cannot read {file}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise TokenizerError(f"{file} is not UTF-8 (at byte {e.start})") from e
    except json.JSONDecodeError as e:
        raise TokenizerError(
            f"{file} is not complete JSON: {e.msg} in line {e.lineno}, column {e.colno}"
        ) from e
    except (RecursionError, ValueError) as e:
        raise TokenizerError(f"{file} is no tokenizer file: {e}") from e


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{shown(twice)} stands twice in one object")
    return content


def _from_json(content: Any) -> OwnParts | LibraryParts:
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise TokenizerError("this is no tokenizer.json: it has no 'model'")
    for name in content:
        if name not in _ENTRIES:
            raise TokenizerError(f"the entry {shown(name)} is unknown; none may be passed over")
    if content.get("version", "1.0") != "1.0":
        raise TokenizerError(f'version must be "1.0", got {shown(content["version"])}')
    for name in ("truncation", "padding"):
        if not isinstance(content.get(name), dict | None):
            raise TokenizerError(f"{name} must be an object or null, got {shown(content[name])}")
    added = read_added_tokens(content.get("added_tokens"))
    try:
        return _own_parts(content, added)
    except Unsupported as e:
        return LibraryParts(content, added, str(e))


def _own_parts(content: dict[str, Any], added: list[AddedToken]) -> OwnParts:
    fields = Fields(content["model"], "model")
    check_settings(fields)
    pre_tokenizer = read_pre_tokenizer(content.get("pre_tokenizer"))
    vocab = check_ids(fields.content.get("vocab"), added)
    vocab_size = max(max(vocab.values()), max((t.id for t in added), default=-1)) + 1
    # What is damaged is looked for before what may be left to the library.
    if pre_tokenizer.byte_level:
        model, missing = read_byte_model(fields, vocab, added, vocab_size)
    else:
        model, missing = read_character_model(fields, vocab, added), b""
    post_processor = read_post_processor(content.get("post_processor"), vocab_size)
    normalizers = read_normalizers(content.get("normalizer"))
    decoder = read_decoder(content.get("decoder"), byte_level=pre_tokenizer.byte_level)
    if not pre_tokenizer.byte_level:
        border = space_border(model, _space_marker(normalizers, pre_tokenizer))
        pre_tokenizer = PreTokenizer(pre_tokenizer.steps, byte_level=False, border=border)
    pipeline = Pipeline(
        normalizers=normalizers,
        pre_tokenizer=pre_tokenizer,
        post_processor=post_processor,
        decoder=decoder,
        unk_token=fields.text("unk_token") if fields.has("unk_token") else None,
        fuse_unk=fields.has("fuse_unk") and fields.flag("fuse_unk"),
        missing_bytes=missing,
    )
    return OwnParts(model, AddedTokens(added, normalizers), pipeline)


def _space_marker(normalizers: tuple[Normalizer, ...], pre_tokenizer: PreTokenizer) -> str:
    """Return the character that the file writes for a space."""
    for step in pre_tokenizer.steps:
        if isinstance(step, Metaspace):
            return step.replacement
    for step in normalizers:
        if isinstance(step, Replace) and step.pattern.text == " " and len(step.content) == 1:
            return step.content
    return SPACE_MARKER
