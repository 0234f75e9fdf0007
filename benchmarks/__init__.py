"""Speed and memory, side by side with the peers that are installed: `make bench`.

The order of imports matters on Linux. PyTorch comes first: loaded later, it would find the BLAS
that mlxgpt puts in place, in the place of its own, and run several times slower. Then mlxgpt,
before anything imports MLX.
"""

from contextlib import suppress

with suppress(ImportError):
    import torch  # noqa: F401
import mlxgpt  # noqa: F401
