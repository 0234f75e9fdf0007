import math

import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.model import GPTConfig


def test_what_is_left_out_is_derived() -> None:
    config = GPTConfig(n_embd=192, n_head=6)
    assert (config.kv_heads, config.head_size, config.mlp_size) == (6, 32, 512)
    assert (config.n_kv_head, config.head_dim, config.intermediate_size) == (6, 32, 512)


@pytest.mark.parametrize(("n_embd", "mlp"), [(12, 32), (13, 64), (128, 352), (384, 1024)])
def test_the_mlp_is_eight_thirds_rounded_up_to_a_multiple_of_32(n_embd: int, mlp: int) -> None:
    config = GPTConfig(n_embd=n_embd, n_head=1, head_dim=8)
    assert config.mlp_size == mlp == math.ceil(n_embd * 8 / 3 / 32) * 32


def test_what_is_given_stays() -> None:
    config = GPTConfig(n_embd=512, n_head=9, n_kv_head=1, head_dim=56, intermediate_size=100)
    assert (config.kv_heads, config.head_size, config.mlp_size) == (1, 56, 100)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n_layer": 0}, "n_layer"),
        ({"n_embd": -8}, "n_embd"),
        ({"n_head": 0}, "n_head"),
        ({"max_seq_len": 0}, "max_seq_len"),
        ({"n_head": 4, "n_kv_head": 3}, "n_kv_head"),
        ({"n_kv_head": 0}, "n_kv_head"),
        ({"n_kv_head": -4}, "n_kv_head"),
        ({"n_embd": 130, "n_head": 4}, "n_embd"),
        ({"n_embd": 12, "n_head": 4}, "head_dim"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": -2}, "head_dim"),
        ({"intermediate_size": 0}, "intermediate_size"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 2**31}, "vocab_size"),
        ({"rope_theta": 0.0}, "rope_theta"),
        ({"rope_theta": math.inf}, "rope_theta"),
        ({"rope_theta": math.nan}, "rope_theta"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ({"rms_norm_eps": math.inf}, "rms_norm_eps"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=f"'{named}'"):
        GPTConfig(**fields)


def test_the_vocabulary_comes_from_the_tokenizer_or_exceeds_it() -> None:
    assert GPTConfig().for_vocab(300).vocab == 300
    assert GPTConfig(vocab_size=320).for_vocab(300).vocab == 320
    with pytest.raises(ConfigError, match="300 ids"):
        GPTConfig(vocab_size=299).for_vocab(300)
    with pytest.raises(ConfigError, match="vocab_size"):
        _ = GPTConfig().vocab
