"""The `post_processor` of a tokenizer.json -> templates, or the name of one that is not ours."""

from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.files.fields import Fields, flattened, is_id, shown
from mlxgpt.text.pipeline.post_processors import PostProcessor, Template
from mlxgpt.text.pipeline.unsupported import Unsupported


def read_post_processor(value: Any, vocab_size: int) -> PostProcessor:
    """Return the templates, whose ids are below `vocab_size`.

    Raises `TokenizerError` for what is damaged, `Unsupported` for what is not ours.
    """
    templates: list[Template] = flattened(value, "post_processor", "processors", _read)
    for template in templates:
        for i in (i for piece in template.pieces if piece is not None for i in piece):
            if i >= vocab_size:
                raise TokenizerError(
                    f"post_processor {template.json['type']} puts in the id {i}, "
                    f"but the largest is {vocab_size - 1}"
                )
    return PostProcessor(tuple(templates))


def _read(fields: Fields) -> list[Template]:
    match fields.type:
        case "ByteLevel":
            for name in ("add_prefix_space", "trim_offsets"):
                fields.flag(name)
            fields.flag("use_regex", True)
            return []
        case "TemplateProcessing":
            return [_read_template(fields)]
        case "BertProcessing" | "RobertaProcessing" as kind:
            sep, cls = _token_and_id(fields, "sep"), _token_and_id(fields, "cls")
            json: dict[str, Any] = {"type": kind, "sep": list(sep), "cls": list(cls)}
            if kind == "RobertaProcessing":
                for name in ("trim_offsets", "add_prefix_space"):
                    json[name] = fields.flag(name, True)
            return [Template(((cls[1],), None, (sep[1],)), json)]
        case other:
            raise Unsupported(f"post_processor '{other}'")


def _read_template(fields: Fields) -> Template:
    known = {
        name: _ids_of(Fields(token, f"{fields.where}.special_tokens[{shown(name)}]"))
        for name, token in fields.inside("special_tokens").content.items()
    }
    pieces = [_piece(entry, place, known, "A") for entry, place in fields.items("single")]
    for entry, place in fields.items("pair"):
        _piece(entry, place, known, "AB")
    if pieces.count(None) != 1:
        raise Unsupported("post_processor TemplateProcessing that holds the text not exactly once")
    names = ("single", "pair", "special_tokens")
    json = {"type": "TemplateProcessing"} | {name: fields.content[name] for name in names}
    return Template(tuple(pieces), json)


def _ids_of(token: Fields) -> tuple[int, ...]:
    token.text("id")
    for entry, place in token.items("tokens"):
        if not isinstance(entry, str):
            raise TokenizerError(f"{place} must be a text, got {shown(entry)}")
    ids = []
    for entry, place in token.items("ids"):
        if not is_id(entry):
            raise TokenizerError(f"{place} must be a whole number from 0, got {shown(entry)}")
        ids.append(entry)
    return tuple(ids)


def _piece(
    entry: Any, place: str, known: dict[str, tuple[int, ...]], texts: str
) -> tuple[int, ...] | None:
    """Return the ids of a piece, None for the text."""
    fields = Fields(entry, place)
    if list(fields.content) == ["Sequence"]:
        text = fields.inside("Sequence")
        text.count("type_id")
        text.choice("id", tuple(texts))
        return None
    if list(fields.content) == ["SpecialToken"]:
        token = fields.inside("SpecialToken")
        token.count("type_id")
        name = token.text("id")
        if name not in known:
            raise TokenizerError(f"{token.where} names {shown(name)}, not one of special_tokens")
        return known[name]
    raise TokenizerError(f"{place} must be a Sequence or a SpecialToken, got {shown(entry)}")


def _token_and_id(fields: Fields, name: str) -> tuple[str, int]:
    value = fields.content.get(name)
    if isinstance(value, list) and len(value) == 2:
        token, i = value
        if isinstance(token, str) and is_id(i):
            return token, i
    raise TokenizerError(f"{fields.where}.{name} must be [token, id], got {shown(value)}")
