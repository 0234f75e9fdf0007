"""The vocab, merges and added tokens of a tokenizer.json -> checked Python values.

Every entry that is given is used or refused: a list of merges never gets shorter by reading it.
"""

from collections.abc import Mapping
from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken
from mlxgpt.text.files.fields import is_id, is_text, shown
from mlxgpt.text.pipeline.unsupported import Unsupported

_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def read_added_tokens(entries: Any) -> list[AddedToken]:
    """Return the added tokens; refuse doubled ids or contents, and flags that are no bool."""
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise TokenizerError("added_tokens must be a list")
    tokens: list[AddedToken] = []
    ids: dict[int, str] = {}
    contents: set[str] = set()
    for n, entry in enumerate(entries):
        token = _read_added_token(n, entry)
        if token.id in ids:
            raise TokenizerError(
                f"added_tokens[{n}]: id {token.id} is that of '{ids[token.id]}' too"
            )
        if token.content in contents:
            raise TokenizerError(f"added_tokens[{n}]: '{token.content}' stands twice")
        ids[token.id] = token.content
        contents.add(token.content)
        tokens.append(token)
    return tokens


def _read_added_token(n: int, entry: Any) -> AddedToken:
    where = f"added_tokens[{n}]"
    if not isinstance(entry, dict):
        raise TokenizerError(f"{where} must be an object, got {shown(entry)}")
    token_id, content = entry.get("id"), entry.get("content")
    if not isinstance(token_id, int) or not is_id(token_id):
        raise TokenizerError(f"{where}: the id must be a whole number from 0, got {token_id!r}")
    if not isinstance(content, str) or not content or not is_text(content):
        raise TokenizerError(f"{where}: the content must be a text, got {shown(content)}")
    flags = {flag: entry[flag] for flag in _FLAGS if flag in entry}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise TokenizerError(f"{where}: '{flag}' must be true or false, got {shown(value)}")
    special = flags.pop("special", False)
    flags.setdefault("normalized", not special)  # the default of the `tokenizers` library
    return AddedToken(id=token_id, content=content, special=special, **flags)


def check_ids(vocab: Any, added: list[AddedToken]) -> dict[str, int]:
    """Return `vocab` if its ids and those of the added tokens are together exactly 0..V-1.

    An added token that is not in `vocab` has the id that the library gives it, the next one behind
    all others, whatever the file says: another one would mean something else in other programs.
    """
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError("model.vocab must be an object of token: id")
    owners: dict[int, str] = {}
    for token, token_id in vocab.items():
        if not is_id(token_id):
            raise TokenizerError(
                f"model.vocab: the id of {shown(token)} is {shown(token_id)}, no whole number"
            )
        if token_id in owners:
            raise TokenizerError(
                f"model.vocab: id {token_id} belongs to {owners[token_id]!r} and to {token!r}"
            )
        owners[token_id] = token
    for token in added:
        if vocab.get(token.content, token.id) != token.id:
            raise TokenizerError(
                f"added_tokens gives '{token.content}' the id {token.id}, "
                f"model.vocab {vocab[token.content]}"
            )
        owner = owners.setdefault(token.id, token.content)
        if owner != token.content:
            raise TokenizerError(f"id {token.id} belongs to {owner!r} and to '{token.content}'")
    for expected in range(len(owners)):
        if expected not in owners:
            raise TokenizerError(
                f"the ids have a hole: {expected} is missing, the largest is {max(owners)}"
            )
    following = len(vocab)
    for token in added:
        if token.content not in vocab and token.id != following:
            raise TokenizerError(
                f"added_tokens gives '{token.content}' the id {token.id}, but it stands where "
                f"other programs give it {following}: put them in the order of their ids"
            )
        following += token.content not in vocab
    return vocab


def read_merges(
    merges: Any, vocab: Mapping[str, int], apart: Mapping[str, str] | None = None
) -> list[tuple[int, int]]:
    """Return the merges (pairs or `"a b"` strings) as pairs of ids; refuse any that is unclear.

    `apart` names tokens that no merge may touch here, each with what it is; a merge that does is
    `Unsupported`.
    """
    if not isinstance(merges, list):
        raise TokenizerError("model.merges must be a list")
    pairs: list[tuple[int, int]] = []
    for n, entry in enumerate(merges):
        left, right = _read_merge(n, entry)
        if left in vocab and right in vocab and left + right in vocab:
            pairs.append((vocab[left], vocab[right]))
            continue
        for part in (left, right, left + right):
            if apart is not None and part in apart:
                raise Unsupported(f"merges over the {apart[part]} '{part}'")
            if part not in vocab:
                raise TokenizerError(
                    f"merges[{n}] ({left!r} + {right!r}) needs the token {part!r}, "
                    "which model.vocab lacks"
                )
    return pairs


def _read_merge(n: int, entry: Any) -> tuple[str, str]:
    if isinstance(entry, str):
        left, space, right = entry.partition(" ")
        if left and right and " " not in right:
            return left, right
        if not space or entry.count(" ") == 1:
            raise TokenizerError(f"merges[{n}] is no pair of tokens: {entry!r}")
        # Where it divides could only be guessed, and no other program reads it.
        raise TokenizerError(
            f"merges[{n}] cannot be divided into two tokens for certain: {entry!r}; "
            "a pair with spaces in it is written as a list of two"
        )
    if isinstance(entry, list) and len(entry) == 2:
        left, right = entry
        if isinstance(left, str) and isinstance(right, str):
            return left, right
    raise TokenizerError(f"merges[{n}] is neither a pair of tokens nor a text: {shown(entry)}")
