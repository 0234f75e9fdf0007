"""The kernels with every index checked: no access leaves an array, whatever the text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlxgpt.text.bpe.dropout import Dropout

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from test_kernel_bounds import use_everything
use_everything()
"""


def use_everything() -> None:
    import random

    import numpy as np
    from kernel_models import fuzzed, learned, with_characters

    from mlxgpt.text.compiled.memory import _SCRATCH
    from mlxgpt.text.compiled.split_rules import known_expressions, rule_for

    models = [learned(), learned(300, 2, shuffled=True), with_characters()]
    encoders = [m.encoder(most_words=n) for m in models for n in (1, 60, 1 << 18)]
    rules = [rule for e in known_expressions() if (rule := rule_for(e)) is not None]
    drawn = random.Random(1)
    texts = [text.encode() for text in fuzzed(150)]
    texts += [
        b"ab" * (_SCRATCH // 2),  # fills its arrays to the last place
        b"ab" * 5000,
        b"\xff" * 40,
        b"ab\xf8\x88",
        b"\xe4\xb8",
        b" \xc3",
        b"'\xc5",
        b"\xf7\xbf",
    ]
    texts += [drawn.randbytes(drawn.randint(0, 200)) for _ in range(150)]
    for i, text in enumerate(texts):
        for k, encoder in enumerate(encoders):
            dropout = None if (i + k) % 3 == 0 else Dropout(drawn.choice([0.02, 0.3, 0.9, 1.0]), i)
            rule = rules[(i * 7 + k) % len(rules)]
            assert len(encoder.encode(text, rule, dropout)) <= len(text)
            if text:
                encoder.encode(text, np.arange(1, len(text) + 1), dropout)
                encoder.encode(text, np.array([len(text)]), dropout)
    print("fine")


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "MLXGPT_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", CODE, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]
