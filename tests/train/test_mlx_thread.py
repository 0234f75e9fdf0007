"""Threads that use MLX: results, errors, and an exit that is not an abort."""

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
    """Without the clearing of streams most of these processes end in `terminate called`."""
    program = f"""
import mlxgpt
import mlx.core as mx
from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.train.mlx_thread import MLXThread

def work():
    model = GPT(GPTConfig(vocab_size=100, n_embd=64, n_head=2, n_layer=2))
    init_weights(model, 0)
    ids = mx.zeros((4, 64), dtype=mx.int32)
    loss = lambda p: (model.update(p), mx.square(model(ids)).sum())[1]
    mx.eval(mx.compile(mx.grad(loss))(model.parameters()))

threads = [MLXThread("t") for _ in range(2)]
for future in [t.submit(work) for t in threads]:
    future.result()
{closing}
"""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
