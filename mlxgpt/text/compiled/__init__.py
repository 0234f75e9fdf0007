"""The same results as `bpe/`, by machine code that numba makes; used for megabytes, not prompts."""
