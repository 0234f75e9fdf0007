from tiny_runs import own_cache  # noqa: F401  (for all tests of this folder)
