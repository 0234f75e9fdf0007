"""Tokenizer -> the `tokenizer.ggml.*` entries of a GGUF file, by which llama.cpp gives its ids.

GGUF has two forms for BPE. A byte-level one has tokens, merges, and a name for how text is cut into
words. One over characters, in the way of SentencePiece, has tokens and scores. What neither can say
is an error that names it; where llama.cpp does a little less, there is a note.
"""

import warnings
from collections.abc import Collection, Iterable
from typing import TypeAlias

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text.bpe.byte_alphabet import to_characters
from mlxgpt.text.files.gguf_patterns import cut_name
from mlxgpt.text.files.gguf_scores import merge_scores
from mlxgpt.text.files.tokenizer_json import token_names
from mlxgpt.text.own_engine import OwnEngine
from mlxgpt.text.pipeline.normalizers import Prepend, Replace, UnicodeForm
from mlxgpt.text.pipeline.patterns import Pattern
from mlxgpt.text.pipeline.pipeline import Pipeline
from mlxgpt.text.pipeline.pre_tokenizers import SPACE_MARKER, Metaspace
from mlxgpt.text.tokenizer import Tokenizer

GGUFValue: TypeAlias = str | bool | int | float | list[str] | list[int] | list[float]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The types of tokens in `tokenizer.ggml.token_type`."""

_INSTEAD = "export to hf instead"
_SPACES_MARKED = Replace(Pattern("String", " "), SPACE_MARKER)


def gguf_tokenizer_metadata(
    tokenizer: Tokenizer, *, vocab_size: int | None = None, stop_ids: Collection[int] = ()
) -> dict[str, GGUFValue]:
    """Return key -> value of everything that a GGUF file says of a tokenizer.

    Ids from the tokenizer's own up to `vocab_size` become unused tokens. `stop_ids` end a text;
    without any it is the end-of-text token. Raises `TokenizerError` for a tokenizer that llama.cpp
    cannot follow, and gives an `MLXGPTWarning` for what it does differently in rare texts.
    """
    engine = tokenizer._engine
    if not isinstance(engine, OwnEngine):
        raise TokenizerError(
            f"a tokenizer with {engine.fallback_reason} cannot be written as GGUF; {_INSTEAD}"
        )
    contents = {token.id: token.content for token in engine.added.tokens}
    names = token_names(engine.model, engine.added, engine.pipeline)
    texts = [contents.get(i) or names[i] for i in range(engine.vocab_size)]
    types = [NORMAL] * len(texts)
    for token in engine.added.tokens:
        types[token.id] = CONTROL if token.special else USER_DEFINED
    padding = range(len(texts), vocab_size or 0)
    texts += [f"[PAD{i}]" for i in padding]
    types += [UNUSED] * len(padding)
    form = _characters if engine.model.byte_fallback else _byte_level
    settings = form(engine, texts, types)
    if len(set(texts)) < len(texts):
        twice = next(text for n, text in enumerate(texts) if text in texts[:n])
        raise TokenizerError(f"two ids would have the name '{twice}' in a GGUF file; {_INSTEAD}")
    _note_what_is_lost(engine)
    settings |= {"tokens": texts, "token_type": types}
    outside = sorted(i for i in stop_ids if not 0 <= i < len(texts))
    if outside:
        _note(f"no id of this vocabulary, so that no text ends with it: {outside[0]}")
    settings |= _border_tokens(tokenizer, engine, texts, {*stop_ids} - {*outside})
    return {f"tokenizer.ggml.{name}": value for name, value in settings.items()}


def _byte_level(engine: OwnEngine, texts: list[str], types: list[int]) -> dict[str, GGUFValue]:  # noqa: ARG001
    model, pre_tokenizer = engine.model, engine.pipeline.pre_tokenizer
    _check_normalizers(engine.pipeline, ())
    cuts = pre_tokenizer.expressions
    name = None if cuts is None else cut_name(cuts, ignore_merges=model.ignore_merges)
    if name is None:
        shown = " and then ".join(cuts or ()) or ", ".join(pre_tokenizer.names) or "nothing"
        raise TokenizerError(
            f"llama.cpp has no name for cutting text by {shown}"
            f"{' with ignore_merges' * model.ignore_merges}; {_INSTEAD}, or train a tokenizer with "
            "one of the patterns gpt2, llama3, qwen2"
        )
    if not model.pairs.size:
        raise TokenizerError(f"llama.cpp does not read a tokenizer without merges; {_INSTEAD}")
    bytes_of = [to_characters(token) if token is not None else "" for token in model.tokens]
    return {
        "model": "gpt2",
        "pre": name,
        "merges": [f"{bytes_of[left]} {bytes_of[right]}" for left, right in model.merges],
    }


def _characters(engine: OwnEngine, texts: list[str], types: list[int]) -> dict[str, GGUFValue]:
    """Return the settings of a "llama" vocabulary; spaces become U+2581 in `texts`, as there."""
    model = engine.model
    if model.ignore_merges and model.pairs.size:
        raise TokenizerError(f"llama.cpp has no ignore_merges for such a tokenizer; {_INSTEAD}")
    prefix = _space_prefix(engine.pipeline)
    if prefix is None:
        _mark_spaces(texts, types)
    for i in model.byte_ids:
        types[i] = BYTE
    for token in engine.added.tokens:
        if token.special and token.content == engine.pipeline.unk_token:
            types[token.id] = UNKNOWN
    scores = [*merge_scores(model), *[0.0] * len(texts)][: len(texts)]
    return {
        "model": "llama",
        "pre": "default",
        "scores": scores,
        "add_space_prefix": bool(prefix),
    }


def _mark_spaces(texts: list[str], types: list[int]) -> None:
    """Write the marker for spaces, which llama.cpp puts in their place, where we keep them."""
    ordinary = [i for i, kind in enumerate(types) if kind == NORMAL]
    if any(SPACE_MARKER in texts[i] for i in ordinary):
        raise TokenizerError(
            f"the tokenizer has a token with '{SPACE_MARKER}', which stands for a space in a GGUF "
            f"file; {_INSTEAD}"
        )
    if all(texts[i] != " " for i in ordinary):
        _note("the tokenizer has no token for a space, and llama.cpp gives one other bytes")
    for i in ordinary:
        texts[i] = texts[i].replace(" ", SPACE_MARKER)


def _space_prefix(pipeline: Pipeline) -> bool | None:
    """Return whether a space is put before text whose spaces become U+2581; None if they stay."""
    steps = list(pipeline.pre_tokenizer.steps)
    if not steps:
        for before in ((Prepend(SPACE_MARKER),), (Prepend(" "),), ()):
            known = (*before, _SPACES_MARKED)
            if _without_nfc(pipeline) == known:
                _check_normalizers(pipeline, known)
                return bool(before)
        _check_normalizers(pipeline, ())
        return None
    _check_normalizers(pipeline, ())
    space = steps[0]
    if len(steps) > 1 or not isinstance(space, Metaspace):
        names = ", ".join(pipeline.pre_tokenizer.names)
        raise TokenizerError(f"llama.cpp has nothing for the pre_tokenizer {names}; {_INSTEAD}")
    if space.replacement != SPACE_MARKER:
        raise TokenizerError(
            f"llama.cpp cannot write '{space.replacement}' for a space; {_INSTEAD}"
        )
    if space.prepend_scheme != "never":
        where = " and behind special tokens" * (space.prepend_scheme == "first")
        _note(f"llama.cpp puts a space before a text that begins with one{where}, we do not")
    return space.prepend_scheme != "never"


def _without_nfc(pipeline: Pipeline) -> tuple[object, ...]:
    return tuple(step for step in pipeline.normalizers if step != UnicodeForm("NFC"))


def _check_normalizers(pipeline: Pipeline, known: tuple[object, ...]) -> None:
    """Refuse normalizers that llama.cpp has not; NFC is a note, since most text is in that form."""
    for step in _without_nfc(pipeline):
        if step not in known:
            name = step.to_json()["type"] if isinstance(step, UnicodeForm) else type(step).__name__
            raise TokenizerError(f"llama.cpp has nothing for the normalizer {name}; {_INSTEAD}")
    if UnicodeForm("NFC") in pipeline.normalizers:
        _note("llama.cpp does not normalize text to NFC; the ids are the same where it is in it")


def _note_what_is_lost(engine: OwnEngine) -> None:
    flags = {"lstrip": 0, "rstrip": 0, "single_word": 0}
    for token in engine.added.tokens:
        for flag in flags:
            flags[flag] += getattr(token, flag)
    said = [f"{flag} of {count} added tokens" for flag, count in flags.items() if count]
    if said:
        _note(f"a GGUF file cannot say {', '.join(said)}; llama.cpp takes no white space with them")


def _border_tokens(
    tokenizer: Tokenizer, engine: OwnEngine, texts: list[str], stop_ids: set[int]
) -> dict[str, GGUFValue]:
    """Return the ids that begin, end and pad a text, and which are put around one."""
    ids = {token.content: token.id for token in engine.added.tokens}
    named = {
        name.removesuffix("_token"): ids[literal]
        for name, literal in tokenizer.border_names().items()
        if literal in ids
    }
    before, after = _around(engine)
    first, last = next(iter(before), None), next(iter(after), None)
    eos = _first_of([last, named.get("eos"), tokenizer.eot_id, *sorted(stop_ids)], stop_ids)
    if eos is None:
        # Without one llama.cpp takes the id 11, or 2, whatever stands there.
        eos = engine.model.byte_ids[0xFF]
        _note("no token ends a text; the byte 0xFF, which is in none, is written as one")
    if last is not None and eos != last:
        raise TokenizerError(
            f"'{texts[last]}' is put behind each text, and is none of the ids that end one; "
            f"a GGUF file cannot say that; {_INSTEAD}"
        )
    bos = _first_of([first, named.get("bos"), eos], set())
    assert bos is not None
    settings: dict[str, GGUFValue] = {"bos_token_id": bos, "eos_token_id": eos}
    settings |= _more_ends(stop_ids - {eos})
    unknown = ids.get(engine.pipeline.unk_token or "")
    for key, i in (("unknown_token_id", unknown), ("padding_token_id", named.get("pad"))):
        if i is not None:
            settings[key] = i
    return settings | {"add_bos_token": first is not None, "add_eos_token": last is not None}


def _around(engine: OwnEngine) -> tuple[list[int], list[int]]:
    """Return the ids that the post-processor puts before and behind a text, at most one each."""
    whole = engine.pipeline.post_processor.apply([-1])
    before, after = whole[: whole.index(-1)], whole[whole.index(-1) + 1 :]
    if len(before) > 1 or len(after) > 1:
        raise TokenizerError(
            f"the post_processor puts {len(before)} tokens before a text and {len(after)} behind "
            f"it; a GGUF file can say one of each; {_INSTEAD}"
        )
    return before, after


def _more_ends(others: set[int]) -> dict[str, GGUFValue]:
    """Return the entries for further ids that end a text; there is room for two."""
    keys = ("eot_token_id", "eom_token_id")
    if len(others) > len(keys):
        left = ", ".join(map(str, sorted(others)[len(keys) :]))
        _note(f"a GGUF file has room for 3 ids that end a text; llama.cpp may go on behind {left}")
    return dict(zip(keys, sorted(others), strict=False))


def _first_of(candidates: Iterable[int | None], allowed: set[int]) -> int | None:
    """Return the first that is not None, and one of `allowed` if there are any."""
    return next((i for i in candidates if i is not None and (not allowed or i in allowed)), None)


def _note(text: str) -> None:
    warnings.warn(text, MLXGPTWarning, stacklevel=5)
