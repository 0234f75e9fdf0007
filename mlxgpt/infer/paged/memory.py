"""How many blocks of keys and values an engine may have, and how far back its model looks."""

from mlxgpt.errors import ConfigError
from mlxgpt.machine.memory import available_memory, total_memory
from mlxgpt.model import GPT, narrower

_UNKNOWN = 2**31
"""Bytes to take where the system does not tell how much it has."""


def blocks_within(kv_memory: int | None, bytes_per_block: int) -> int:
    """Return how many blocks fit into `kv_memory` bytes; None: half of the memory available now.

    Raises `ConfigError` if not a single one does, and for more than the machine has.
    """
    if kv_memory is None:
        kv_memory = (available_memory() or _UNKNOWN) // 2
    elif (total := total_memory()) is not None and kv_memory > total:
        raise ConfigError(
            f"{kv_memory:,} bytes for keys and values (kv_memory) are more than this machine has, "
            f"{total:,}"
        )
    if kv_memory < bytes_per_block:
        raise ConfigError(
            f"{kv_memory:,} bytes for keys and values (kv_memory) are less than one block of this "
            f"model takes, {bytes_per_block:,}"
        )
    return kv_memory // bytes_per_block


def whole_window(model: GPT) -> int | None:
    """Return how many tokens back, the token itself included, the layer that sees most looks."""
    config = model.config
    farthest: int | None = 0
    for layer in range(config.n_layer):
        window = narrower(config.context, config.window(layer))
        farthest = None if window is None or farthest is None else max(farthest, window)
    return farthest
