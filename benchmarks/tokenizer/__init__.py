"""Encoding, BPE-dropout and training beside the peers, each on one thread.

`python -m benchmarks.tokenizer --help`. The peers read these two variables when they first work, so
they are set before any of them is imported.
"""

import os

os.environ["RAYON_NUM_THREADS"] = (
    "1"  # tokenizers, tiktoken, gigatoken, fastokens, rustbpe, gigabpe
)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
