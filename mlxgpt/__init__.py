"""mlxgpt: text -> tokens -> a GPT language model -> text, on MLX."""

import os
import sys
from typing import TYPE_CHECKING, Any

from mlxgpt.errors import MLXGPTError
from mlxgpt.machine.blas import preload_blas

__version__ = "0.1.0"

# Before anything here can import mlx.core: afterwards it is too late (mlxgpt/machine/blas.py).
try:
    preload_blas()
except MLXGPTError as error:
    if os.path.basename(sys.argv[0]) != "mlxgpt":
        raise
    print(f"mlxgpt: error: {error}", file=sys.stderr)  # the command's own handler is not loaded yet
    raise SystemExit(2) from None

if TYPE_CHECKING:
    from mlxgpt.checkpoint import load as load
    from mlxgpt.text import Tokenizer as Tokenizer

_PUBLIC = {"load": "mlxgpt.checkpoint", "Tokenizer": "mlxgpt.text"}
__all__ = ["MLXGPTError", "Tokenizer", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: MLX takes a while, and `--help` must not."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mlxgpt' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
