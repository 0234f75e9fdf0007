"""The facts of a model -> the rows of the table: (what, the fact in words)."""

from collections.abc import Sequence
from typing import Any

Facts = dict[str, Any]
Rows = list[tuple[str, str]]

_LARGE = (("billion", 10**9), ("million", 10**6))
_SHOWN = 6
"""Ids that end a text and the like that the table names."""


def model_rows(facts: Facts) -> Rows:
    """Return the rows; what is not known has none."""
    rows = [
        ("model", facts["model"] + ", a run" * (facts["kind"] == "run")),
        ("path", _path(facts)),
        ("architecture", _architecture(facts)),
        ("layers", _number(facts["n_layer"])),
        ("width", _number(facts["n_embd"])),
        ("heads", _heads(facts)),
        ("MLP width", _mlp(facts)),
        ("context", _number(facts["context"], "tokens")),
        ("positions", _positions(facts)),
        ("window", _window(facts)),
        ("parameters", _parameters(facts)),
        ("vocabulary", _number(facts["vocab_size"], "ids")),
        ("tokenizer", _tokenizer(facts)),
        ("special tokens", _special(facts)),
        (
            "ends a text",
            _few(list(map(_token, facts["stop_tokens"]))) or "no id: length alone does",
        ),
        ("chat template", "yes" if facts["chat_template"] else "no"),
        ("weights", precision(facts)),
        ("on disk", _disk(facts)),
        ("in memory", _memory(facts)),
        ("cache", _cache(facts)),
        ("this machine", _fit(facts["here"])),
        *_training(facts["training"]),
    ]
    return [(name, words) for name, words in rows if words]


def size(count: int) -> str:
    """Return bytes in words, such as "22.5 KiB"."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 2**power:
            return f"{count / 2**power:,.1f} {unit}"
    return f"{count:,} bytes"


def precision(facts: Facts) -> str:
    """Return in words how weights are stored: "4 bits, groups of 64; 7 matrices with 8 bits"."""
    ways = facts["quantization"]
    if not ways:
        return facts["dtype"]
    first = ways[0]
    words = [_way(first) + f" ({first['matrices']:,} matrices)"]
    for other in ways[1:]:
        same = (other["group_size"], other["mode"]) == (first["group_size"], first["mode"])
        how = f"{other['bits']} bits" if same else _way(other)
        words.append(f"{other['matrices']:,} with {how}")
    return "; ".join([*words, f"the rest {facts['dtype']}"])


def _way(how: Facts) -> str:
    mode = f" ({how['mode']})" if how["mode"] != "affine" else ""
    return f"{how['bits']} bits, groups of {how['group_size']}{mode}"


def _path(facts: Facts) -> str:
    if facts["path"] is None:
        return "on the Hub; its weights are not downloaded yet"
    return "" if facts["path"] == facts["model"] else facts["path"]


def _architecture(facts: Facts) -> str:
    name = f"{facts['family']}, {facts['format']}"
    if facts["run_by"] is None:
        reads = " (mlx-lm, which runs others, reads no GGUF)" * (facts["format"] == "GGUF")
        return f"{name}; cannot be run here: mlxgpt does not know it{reads or ', nor does mlx-lm'}"
    return name if facts["run_by"] == "mlxgpt" else f"{name}; run by {facts['run_by']}"


def _heads(facts: Facts) -> str:
    heads, kv, size_of_one = facts["n_head"], facts["n_kv_head"], facts["head_dim"]
    if heads is None:
        return ""
    words = f"{heads:,}" + (f" of {size_of_one:,}" if size_of_one else "")
    return words if kv == heads else f"{words}; {kv:,} for keys and values"


def _mlp(facts: Facts) -> str:
    words, experts = _number(facts["intermediate_size"]), facts["experts"]
    if not experts:
        return words
    used = facts["experts_per_token"]
    chosen = f", {used:,} for a token" if used else ""
    return f"{words}; {experts:,} experts{chosen}" if words else f"{experts:,} experts{chosen}"


def _positions(facts: Facts) -> str:
    theta, scaling = facts["rope_theta"], facts["rope_scaling"]
    if theta is None:
        return ""
    words = f"rotary, theta {theta:,.10g}"
    if scaling:
        words += f"; {scaling['rope_type']}"
        if scaling.get("factor"):
            words += f" by {scaling['factor']:g}"
        if scaling.get("original_max_position_embeddings"):
            words += f" from {scaling['original_max_position_embeddings']:,} tokens"
    without = facts["layers_without_rope"]
    return words + (f"; none in {_layers(without)}" if without else "")


def _window(facts: Facts) -> str:
    window, layers = facts["sliding_window"], facts["layers_with_window"]
    if window is None:
        return ""
    where = ""
    if layers is not None:
        where = " in all layers" if layers == facts["n_layer"] else f" in {_layers(layers)}"
    return f"{window:,} tokens{where}"


def _parameters(facts: Facts) -> str:
    tied = facts["tie_embeddings"]
    shared = "" if tied is None else ", which is the head too" if tied else ", or the head"
    total, outside = facts["parameters"], facts["parameters_outside_embedding"]
    about = next((f" ({total / n:.3g} {unit})" for unit, n in _LARGE if total >= n), "")
    return f"{total:,}{about}; {outside:,} of them outside the embedding{shared}"


def _tokenizer(facts: Facts) -> str:
    tokenizer, problem = facts["tokenizer"], facts["tokenizer_problem"]
    if tokenizer is None:
        return f"none: {problem}"
    words = f"{tokenizer['family']}; {tokenizer['vocab_size']:,} ids"
    return f"{words}; {problem}" if problem else words


def _special(facts: Facts) -> str:
    tokenizer = facts["tokenizer"]
    if tokenizer is None:
        return ""
    roles: dict[str, list[str]] = {}
    for name, token in sorted(tokenizer["named_tokens"].items()):
        roles.setdefault(_token(token), []).append(name.removesuffix("_token"))
    named = [f"{', '.join(names)} {token}" for token, names in roles.items()]
    count = f"{tokenizer['special_tokens']:,}"
    return f"{count}: {'; '.join(named)}" if named else count


def _token(token: Facts) -> str:
    if token["text"] is None:
        return f"id {token['id']}"
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in token["text"])
    return f"{text} {token['id']}"


def _disk(facts: Facts) -> str:
    words = f"{size(facts['bytes_on_disk'])} in {facts['tensors']:,} tensors"
    types = ", ".join(facts["stored_types"])
    return f"{words}: {types}" if facts["format"] == "GGUF" else words


def _memory(facts: Facts) -> str:
    stored, whole = facts["bytes_in_memory"], facts["bytes_in_memory_float32"]
    if stored == whole:
        return size(stored)
    return f"{size(stored)} as stored, on a GPU; {size(whole)} in float32, on a CPU"


def _cache(facts: Facts) -> str:
    token, whole = facts["kv_bytes_per_token"], facts["kv_bytes_context"]
    if token is None:
        return ""
    words = f"{size(token)} a token"
    if whole is not None:
        words += f", {size(whole)} for the whole context"
    return words + (f", in {facts['dtype']}" if facts["dtype"] != "float32" else "")


def _fit(here: Facts) -> str:
    memory, weights, whole = here["memory_bytes"], here["weights_bytes"], here["cache_bytes"]
    if memory is None:
        return ""
    if weights > memory:
        return f"does not fit: {size(weights)} of weights, and {size(memory)} of memory"
    if whole is None:
        return f"the weights fit: {size(weights)} of {size(memory)}"
    if here["fits"]:
        return f"fits with the whole context: {size(weights + whole)} of {size(memory)}"
    return (
        f"fits with {here['tokens']:,} tokens of context at most: weights take {size(weights)} of "
        f"{size(memory)}"
    )


def _training(run: Facts | None) -> Rows:
    if run is None:
        return []
    done, wanted = run["steps_done"], run["steps_wanted"]
    losses = [
        f"{name} {run[key]:.4f}"
        for name, key in (("training", "train_loss"), ("validation", "val_loss"))
        if run[key] is not None
    ]
    if run["bits_per_byte"] is not None:
        losses.append(f"{run['bits_per_byte']:.4f} bits per byte")
    part = f" of {wanted:,}" if done < wanted else ""
    return [
        ("trained on", run["data"]),
        ("first weights", run["start"] or ""),
        ("steps", f"{done:,}{part}, {run['tokens']:,} tokens; {run['optimizer']}"),
        ("loss", ", ".join(losses)),
    ]


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count:,} layers"


def _number(value: int | None, unit: str = "") -> str:
    return "" if value is None else f"{value:,} {unit}".rstrip()


def _few(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])
