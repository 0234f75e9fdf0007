"""Memory of freed arrays is kept, and a larger limit of the user's own stays."""

import mlx.core as mx
import pytest

from mlxgpt.machine import freed_arrays


@pytest.mark.skipif(
    mx.default_device().type != mx.DeviceType.cpu, reason="a GPU's limit is left alone"
)
def test_the_limit_is_raised_and_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_arrays, "total_memory", lambda: 2**30)
    before = mx.set_cache_limit(2**20)
    try:
        freed_arrays.keep_freed_arrays()
        assert mx.set_cache_limit(2**28) == 2**27
        freed_arrays.keep_freed_arrays()
        assert mx.set_cache_limit(2**28) == 2**28
    finally:
        mx.set_cache_limit(before)
