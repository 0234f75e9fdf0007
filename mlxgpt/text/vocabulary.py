"""The vocab, merges and added tokens of a tokenizer.json -> checked Python values.

Every entry that is given is used or refused: a list of merges never gets shorter by reading it.
"""

from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken, AddedTokens

_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def read_added_tokens(entries: Any) -> AddedTokens:
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
    return AddedTokens(tokens)


def _read_added_token(n: int, entry: Any) -> AddedToken:
    where = f"added_tokens[{n}]"
    if not isinstance(entry, dict):
        raise TokenizerError(f"{where} must be an object, got {entry!r}")
    token_id, content = entry.get("id"), entry.get("content")
    if not isinstance(token_id, int) or not _is_id(token_id):
        raise TokenizerError(f"{where}: the id must be a whole number from 0, got {token_id!r}")
    if not isinstance(content, str) or not content or not _is_text(content):
        raise TokenizerError(f"{where}: the content must be a text, got {content!r}")
    flags = {flag: entry[flag] for flag in _FLAGS if flag in entry}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise TokenizerError(f"{where}: '{flag}' must be true or false, got {value!r}")
    special = flags.pop("special", False)
    flags.setdefault("normalized", not special)  # the default of the `tokenizers` library
    return AddedToken(id=token_id, content=content, special=special, **flags)


def read_ids(vocab: Any, added: AddedTokens) -> dict[str, int]:
    """Return `vocab` if its ids and those of the added tokens are together exactly 0..V-1."""
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError("model.vocab must be an object of token: id")
    owners: dict[int, str] = {}
    for token, token_id in vocab.items():
        if not _is_id(token_id):
            raise TokenizerError(
                f"model.vocab: the id of {token!r} is {token_id!r}, no whole number"
            )
        if token_id in owners:
            raise TokenizerError(
                f"model.vocab: id {token_id} belongs to {owners[token_id]!r} and to {token!r}"
            )
        owners[token_id] = token
    for token in added.tokens:
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
    return vocab


def read_merges(merges: Any, vocab: dict[str, int]) -> list[tuple[int, int]]:
    """Return the merges (pairs or `"a b"` strings) as pairs of ids; refuse any that is unclear."""
    if not isinstance(merges, list):
        raise TokenizerError("model.merges must be a list")
    pairs: list[tuple[int, int]] = []
    for n, entry in enumerate(merges):
        left, right = _read_merge(n, entry, vocab)
        for part in (left, right, left + right):
            if part not in vocab:
                raise TokenizerError(
                    f"merges[{n}] ({left!r} + {right!r}) needs the token {part!r}, "
                    "which model.vocab lacks"
                )
        pairs.append((vocab[left], vocab[right]))
    return pairs


def _read_merge(n: int, entry: Any, vocab: dict[str, int]) -> tuple[str, str]:
    if isinstance(entry, list) and len(entry) == 2 and all(isinstance(p, str) for p in entry):
        return entry[0], entry[1]
    if not isinstance(entry, str):
        raise TokenizerError(f"merges[{n}] is neither a pair of tokens nor a text: {entry!r}")
    parts = entry.split(" ")
    if len(parts) == 2 and all(parts):
        return parts[0], parts[1]
    # A part may hold a space itself: the vocabulary tells where the pair divides.
    cuts = [i for i, character in enumerate(entry) if character == " "]
    known = [(entry[:i], entry[i + 1 :]) for i in cuts]
    known = [pair for pair in known if pair[0] in vocab and pair[1] in vocab]
    if len(known) != 1:
        raise TokenizerError(f"merges[{n}] cannot be divided into two tokens: {entry!r}")
    return known[0]


def without_added(vocab: dict[str, int], added: AddedTokens) -> list[str]:
    """Return the names in `vocab` that are not those of added tokens."""
    contents = {token.content for token in added.tokens}
    return [name for name in vocab if name not in contents]


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
