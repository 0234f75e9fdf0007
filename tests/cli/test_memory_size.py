import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.cli.memory_size import parse_size
from mlxgpt.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9), ("512MiB", 512 * 2**20), ("1000000", 10**6), ("1.5gib", 3 * 2**29),
        (" 3 kB ", 3000), ("1TB", 10**12), ("0.5KiB", 512), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--x") == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2G", "2GB or 2GiB"), ("1.5m", "1.5MB or 1.5MiB"), ("", "2GB or 512MiB"), ("-1GB", "-1GB"),
        ("GB", "'GB'"), ("1e9", "1e9"), ("1,5GB", "1,5GB"), ("0", "at least one byte"),
        ("0.1B", "at least one byte"), ("٣GB", "٣GB"), ("9" * 40, "999"), ("nan", "nan"),
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_size(text, "--kv-memory")
    assert "--kv-memory" in str(refused.value)
    assert words in str(refused.value)


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_size(text, "--x") >= 1
