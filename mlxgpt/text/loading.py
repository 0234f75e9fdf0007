"""A tokenizer.json on disk -> a model and its added tokens, or one line that says what is wrong.

`truncation` and `padding` are passed over: they shape batches, not the ids of a text.
"""

import json
from pathlib import Path
from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.byte_alphabet import from_characters
from mlxgpt.text.byte_pair_model import BytePairModel
from mlxgpt.text.char_model import CharModel, byte_token
from mlxgpt.text.components import (
    check_model_settings,
    check_no_normalizer,
    check_only_byte_level,
    check_reads_characters,
    split_patterns,
)
from mlxgpt.text.vocabulary import read_added_tokens, read_ids, read_merges, without_added


def read_tokenizer(path: Path) -> tuple[BytePairModel | CharModel, AddedTokens]:
    """Read the tokenizer.json `path`, or the one in the directory `path`.

    Raises `TokenizerError` with the file's name and the component, entry or place in question.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if file != path and not file.exists():
        raise TokenizerError(f"the directory {path} holds no tokenizer.json")
    content = _read_json(file)
    try:
        return _from_json(content)
    except TokenizerError as e:
        raise TokenizerError(f"{file}: {e}") from e


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes().decode("utf-8"))
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


def _from_json(content: Any) -> tuple[BytePairModel | CharModel, AddedTokens]:
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError("this is no tokenizer.json: it has no 'model'")
    check_model_settings(model)
    check_no_normalizer(content.get("normalizer"))
    added = read_added_tokens(content.get("added_tokens"))
    vocab = read_ids(model.get("vocab"), added)
    if model.get("byte_fallback"):
        check_reads_characters(content)
        return _char_model(vocab, added), added
    patterns = split_patterns(content.get("pre_tokenizer"))
    check_only_byte_level("post_processor", content.get("post_processor"))
    check_only_byte_level("decoder", content.get("decoder"))
    merges = read_merges(model.get("merges"), vocab)
    tokens = _byte_tokens(vocab, added)
    ignore_merges = bool(model.get("ignore_merges"))
    return BytePairModel(tokens, merges, patterns, ignore_merges=ignore_merges), added


def _byte_tokens(vocab: dict[str, int], added: AddedTokens) -> list[bytes | None]:
    """Return the bytes of each id of the model; None where a special token stands."""
    contents: dict[str, AddedToken] = {token.content: token for token in added.tokens}
    tokens: list[bytes | None] = [None] * (max(vocab.values(), default=-1) + 1)
    for name, i in vocab.items():
        token = contents.get(name)
        data = from_characters(name)
        if token is not None and (token.special or data is None):
            continue
        if data is None:
            raise TokenizerError(
                f"model.vocab: the token {name!r} (id {i}) is not written in the characters of "
                "byte-level BPE"
            )
        tokens[i] = data
    return tokens


def _char_model(vocab: dict[str, int], added: AddedTokens) -> CharModel:
    names = sorted(without_added(vocab, added), key=vocab.__getitem__)
    n_characters = len(names) - 256
    if n_characters < 0 or names[n_characters:] != [byte_token(byte) for byte in range(256)]:
        raise TokenizerError(
            "model.vocab of a character tokenizer must be its characters and then <0x00> to <0xFF>"
        )
    return CharModel(names[:n_characters])
