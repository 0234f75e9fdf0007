"""What is known of an exported model -> README.md, the model card that the Hub shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlxgpt import __version__
from mlxgpt.model import GPTConfig, Quantization, non_embedding, num_parameters

Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class About:
    """What the files of a model do not say."""

    title: str
    source: Rows = ()
    """Where it comes from: a base, an adapter."""
    training: Rows = ()
    """What it was trained on and how well it does; empty: not known."""


def model_card(config: GPTConfig, about: About, family: str, precision: str, use: Rows) -> str:
    """Return a model card in Markdown; `use` is pairs of a tool and its command line."""
    shape = [
        ("architecture", family),
        ("parameters", f"{num_parameters(config):,}"),
        ("outside the embedding", f"{non_embedding(config):,}"),
        ("layers", f"{config.n_layer:,}"),
        ("width", f"{config.n_embd:,}"),
        ("heads", f"{config.n_head} of {config.head_size}, {config.kv_heads} for keys and values"),
        ("MLP width", f"{config.mlp_size:,}"),
        ("context", f"{config.context:,} tokens"),
        ("vocabulary", f"{config.vocab:,} ids"),
        ("weights", precision),
    ]
    parts = [
        "---\nlibrary_name: mlx\npipeline_tag: text-generation\ntags:\n- mlx\n- mlxgpt\n---",
        f"# {_plain(about.title)}",
        f"A language model of {num_parameters(config):,} parameters, exported by mlxgpt "
        f"{__version__}.",
        _table("Model", [*about.source, *shape]),
    ]
    if about.training:
        parts.append(_table("Training", about.training))
    else:
        parts.append("## Training\n\nNothing about the training was found beside the weights.")
    parts.append("## Use\n\n```\n" + "\n".join(f"# {how}\n{line}" for how, line in use) + "\n```")
    return "\n\n".join(parts) + "\n"


def precision_of(quantization: Mapping[str, Quantization], dtype: str) -> str:
    """Return in words how weights are stored, such as "4 bits in groups of 64, else bfloat16"."""
    kinds = sorted({(q.bits, q.group_size, q.mode) for q in quantization.values()})
    if not kinds:
        return dtype
    words = [f"{b} bits in groups of {g}" + f" ({m})" * (m != "affine") for b, g, m in kinds]
    return " and ".join(words) + f", else {dtype}"


def _table(title: str, rows: Rows) -> str:
    lines = [f"| {_plain(name)} | {_plain(value)} |" for name, value in rows]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines])


def _plain(text: str) -> str:
    """Keep a value inside its cell."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
