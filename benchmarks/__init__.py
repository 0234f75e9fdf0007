"""Speed and memory, side by side with the peers that are installed: `make bench`.

mlxgpt comes first, since it must load a BLAS before anything imports MLX.
"""

import mlxgpt  # noqa: F401
