"""The `model` of a tokenizer.json -> the plain BPE model, or the reason why it is not ours."""

from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedToken
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import byte_token, from_characters
from mlxgpt.text.files.fields import Fields, is_text, shown
from mlxgpt.text.files.vocabulary import read_merges
from mlxgpt.text.pipeline.pre_tokenizers import SPACE_MARKER, SpaceBorder
from mlxgpt.text.pipeline.unsupported import Unsupported

_BYTE_NAMES = {byte_token(byte): byte for byte in range(256)}


def check_settings(model: Fields) -> None:
    """Refuse settings of a wrong type; `Unsupported` for a kind or a setting that is not ours."""
    # GPT-2's own file has no type.
    kind = model.content.get("type", "BPE" if "merges" in model.content else None)
    if kind != "BPE":
        raise Unsupported(f"model.type {kind!r}")
    for name in ("ignore_merges", "byte_fallback", "fuse_unk"):
        if model.has(name):
            model.flag(name)
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.has(name):
            model.text(name)
    dropout = model.content.get("dropout")
    if dropout is not None and (isinstance(dropout, bool) or not isinstance(dropout, int | float)):
        raise TokenizerError(f"model.dropout must be a number or null, got {shown(dropout)}")
    if dropout:
        raise TokenizerError(
            f"model.dropout {dropout!r} would make the ids random; set it to null: "
            "dropout is chosen when text is encoded"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.has(name) and model.text(name):
            raise Unsupported(f"model.{name} {model.text(name)!r}")


def read_byte_model(
    model: Fields, vocab: dict[str, int], added: list[AddedToken], vocab_size: int
) -> tuple[BPEModel, bytes]:
    """Return the model over bytes, whose tokens are written in the byte alphabet, and the bytes
    that have no token.
    """
    contents = {token.content: token for token in added}
    tokens: list[bytes | None] = [None] * (max(vocab.values()) + 1)
    apart: dict[str, str] = {}
    for name, i in vocab.items():
        data = from_characters(name)
        token = contents.get(name)
        if token is not None and (token.special or data is None):
            apart[name] = "special token" if token.special else "added token"
            continue
        if data is None:
            raise TokenizerError(
                f"model.vocab: the token {name!r} (id {i}) is not written in the characters of "
                "byte-level BPE"
            )
        tokens[i] = data
    merges = read_merges(model.content.get("merges"), _without(vocab, apart), apart)
    known = {token for token in tokens if token is not None and len(token) == 1}
    missing = bytes(byte for byte in range(256) if bytes([byte]) not in known)
    if missing and model.has("unk_token"):
        raise Unsupported(f"model.unk_token for {len(missing)} bytes that have no token")
    # They get ids behind all others, which no text leads to: see `UnknownBytes`.
    tokens += [None] * (vocab_size - len(tokens) if missing else 0)
    tokens += [bytes([byte]) for byte in missing]
    return BPEModel(tokens, merges, ignore_merges=_flag(model, "ignore_merges")), missing


def read_character_model(model: Fields, vocab: dict[str, int], added: list[AddedToken]) -> BPEModel:
    """Return the model over characters, with tokens for the bytes of all others."""
    special = {token.content for token in added if token.special}
    apart = dict.fromkeys(vocab.keys() & special, "special token")
    apart |= dict.fromkeys(vocab.keys() & _BYTE_NAMES.keys(), "byte token")
    merges = read_merges(model.content.get("merges"), _without(vocab, apart), apart)
    missing = _BYTE_NAMES.keys() - vocab.keys()
    if missing or not _flag(model, "byte_fallback"):
        named = f"model.unk_token {model.text('unk_token')!r}" if model.has("unk_token") else "loss"
        raise Unsupported(f"{named} for characters that have no token")
    tokens: list[bytes | None] = [None] * (max(vocab.values()) + 1)
    for name, i in vocab.items():
        if name in _BYTE_NAMES:
            tokens[i] = bytes([_BYTE_NAMES[name]])
        elif name not in apart:
            if not is_text(name):
                raise TokenizerError(f"model.vocab: {shown(name)} (id {i}) is no text")
            tokens[i] = name.encode("utf-8")
    return BPEModel(
        tokens,
        merges,
        byte_ids=[vocab[name] for name in _BYTE_NAMES],
        byte_fallback=True,
        ignore_merges=_flag(model, "ignore_merges"),
    )


def space_border(model: BPEModel, marker: str = SPACE_MARKER) -> SpaceBorder | None:
    """Return where text that a file leaves whole may be cut without changing an id.

    None if nothing is merged, or whole words have ids of their own under `ignore_merges`.
    """
    if model.ignore_merges or not model.merges:
        return None
    mark = marker.encode("utf-8")
    joined: set[str] = set()
    for left, right in model.merges:
        before, behind = model.tokens[left], model.tokens[right]
        if before and behind and behind.startswith(mark):
            joined.add(before.decode("utf-8")[-1])
    return SpaceBorder(marker, "".join(sorted(joined)))


def _flag(model: Fields, name: str) -> bool:
    return model.has(name) and model.flag(name)


def _without(vocab: dict[str, int], apart: dict[str, str]) -> dict[str, int]:
    return {name: i for name, i in vocab.items() if name not in apart} if apart else vocab
