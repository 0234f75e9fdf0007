"""Generation, measured: the engine and its parts against mlx-lm, and against their own twins."""
