"""Threads that use MLX: results, errors, and an exit that is not an abort."""

import os
import subprocess
import sys

import mlx.core as mx
import pytest

from mlxgpt.train.mlx_thread import MLXThread


def test_results_and_errors_come_back_in_order() -> None:
    thread = MLXThread("test")
    seen: list[int] = []

    def work(i: int) -> int:
        seen.append(i)
        return i * 2

    futures = [thread.submit(lambda i=i: work(i)) for i in range(20)]
    assert [f.result() for f in futures] == [2 * i for i in range(20)]
    assert seen == list(range(20))
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 / 0).result()
    assert thread.submit(lambda: mx.ones(3).sum().item()).result() == 3.0
    thread.close()
    thread.close()


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["", "[t.close() for t in threads]"])
def test_a_process_with_such_threads_ends_without_an_abort(closing: str) -> None:
    """Without the clearing of streams about half of these processes end in `terminate called`."""
    program = f"""
import mlxgpt
import mlx.core as mx
from mlxgpt.train.mlx_thread import MLXThread

def work():
    x = mx.random.normal((256, 256), key=mx.random.key(0))
    mx.eval(mx.grad(lambda x: (mx.exp(x) @ x).sum())(x))

threads = [MLXThread("t") for _ in range(3)]
for future in [t.submit(work) for t in threads for _ in range(3)]:
    future.result()
{closing}
"""
    for _ in range(4):
        environment = os.environ | {"MLXGPT_BLAS": "off"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
