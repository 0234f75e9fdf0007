"""mlxgpt: text -> tokens -> a GPT language model -> text, on MLX."""

import os
import sys

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
