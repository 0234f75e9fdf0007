"""A damaged adapter is refused in one line that names what is wrong, before it is attached."""

import shutil
from typing import Any

import mlx.core as mx
import pytest
from damage import FILES, NAMES, Q1, V0, Form, change_settings, change_tensors, outcome, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_adapters import QUERIES, paths

from mlxgpt.checkpoint import Adapter, attach, read_adapter
from mlxgpt.errors import CheckpointError


def test_the_sound_one_is_read(form: Form) -> None:
    adapter = read_adapter(form[1])
    assert isinstance(adapter, Adapter)
    attach(form[2], adapter)


@pytest.mark.parametrize("part", ["a", "b"])
def test_half_a_pair(form: Form, part: str) -> None:
    name = NAMES[form[0]][part].format(Q1)
    change_tensors(form, lambda tensors: tensors.pop(name))
    message = refused(form)
    assert Q1 in message
    assert f"lacks its part '{part}'" in message


def test_a_pair_that_is_missing(form: Form) -> None:
    names = [NAMES[form[0]][part].format(V0) for part in "ab"]
    change_tensors(form, lambda tensors: [tensors.pop(name) for name in names])
    assert f"missing: '{V0}'" in refused(form)


@pytest.mark.parametrize("path", ["model.layers.7.self_attn.q_proj", "model.layers.0.mlp.up_proj"])
def test_a_pair_too_many(form: Form, path: str) -> None:
    def add(tensors: dict[str, mx.array]) -> None:
        for part in "ab":
            name = NAMES[form[0]][part]
            tensors[name.format(path)] = tensors[name.format(Q1)]

    change_tensors(form, add)
    assert path in refused(form)


def test_what_the_settings_do_not_name_is_refused_without_a_network_too(form: Form) -> None:
    names = [NAMES[form[0]][part] for part in "ab"]
    other = "model.layers.0.mlp.up_proj"
    change_tensors(
        form, lambda t: t.update({name.format(other): t[name.format(Q1)] for name in names})
    )
    with pytest.raises(CheckpointError, match=other):
        read_adapter(form[1])
    change_tensors(form, lambda t: [t.pop(name.format(other)) for name in names])
    read_adapter(form[1])
    norm = "base_model.model.model.norm.weight" if form[0] == "peft" else "model.norm.weight"
    change_tensors(form, lambda t: t.update({norm: mx.ones(32)}))
    with pytest.raises(CheckpointError, match=norm):
        read_adapter(form[1])


@pytest.mark.parametrize("name", ["stray", "model.norm.weight", f"{Q1}.lora_c", f"{Q1}.weight"])
def test_a_tensor_too_many(form: Form, name: str) -> None:
    for full in (name, f"base_model.model.{name}"):
        change_tensors(form, lambda tensors, full=full: tensors.update({full: mx.ones(3)}))
        assert name in refused(form)


def test_a_magnitude_where_the_settings_say_lora_and_none_where_they_say_dora(form: Form) -> None:
    dora = {"fine_tune_type": "dora"} if form[0] == "mlx-lm" else {"use_dora": True}
    change_settings(form[1], None, **dora)
    assert "lacks its part 'm'" in refused(form)
    change_settings(form[1], None, **({k: False if v is True else "lora" for k, v in dora.items()}))
    name = NAMES[form[0]]["m"].format(Q1)
    change_tensors(form, lambda tensors: tensors.update({name: mx.ones(32)}))
    assert "the settings say LoRA" in refused(form)


def test_another_rank_than_the_settings_say(form: Form) -> None:
    if form[0] == "mlx-lm":
        change_settings(form[1], "lora_parameters", rank=8)
    else:
        change_settings(form[1], None, r=8)
    assert "rank 4 in a and 4 in b, the settings say 8" in refused(form)


def test_a_pair_whose_ranks_differ(form: Form) -> None:
    name = NAMES[form[0]]["b"].format(Q1)
    cut = (slice(0, 3),) if form[0] == "mlx-lm" else (slice(None), slice(0, 3))
    change_tensors(form, lambda tensors: tensors.update({name: tensors[name][cut]}))
    assert "rank 4 in a and 3 in b" in refused(form)


def test_the_other_way_round(form: Form) -> None:
    name = NAMES[form[0]]["a"].format(Q1)
    change_tensors(form, lambda tensors: tensors.update({name: tensors[name].T}))
    assert Q1 in refused(form)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number(form: Form, value: float) -> None:
    name = NAMES[form[0]]["b"].format(Q1)

    def spoil(tensors: dict[str, mx.array]) -> None:
        tensors[name][1, 2] = value

    change_tensors(form, spoil)
    message = refused(form)
    assert name in message
    assert "NaN or infinite" in message


@pytest.mark.parametrize("dtype", [mx.int32, mx.uint8, mx.complex64])
def test_another_dtype(form: Form, dtype: mx.Dtype) -> None:
    name = NAMES[form[0]]["b"].format(Q1)
    change_tensors(form, lambda tensors: tensors.update({name: tensors[name].astype(dtype)}))
    assert name in refused(form)


def test_one_dimension_or_three(form: Form) -> None:
    name = NAMES[form[0]]["a"].format(Q1)
    for shape in ((-1,), (2, 2, -1), (0, 4)):
        change_tensors(form, lambda t, s=shape: t.update({name: mx.zeros(128).reshape(s)
                       if 0 not in s else mx.zeros(s)}))  # fmt: skip
        refused(form)


def test_a_cut_file(form: Form) -> None:
    file = form[1] / FILES[form[0]]
    whole = file.read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert file.name in refused(form)
    file.write_bytes(whole + b"\0")
    assert "trailing" in refused(form)
    mx.save_safetensors(str(file), {})
    refused(form)


def test_files_that_are_missing_or_run_code(form: Form) -> None:
    file = form[1] / FILES[form[0]]
    whole = file.read_bytes()
    file.unlink()
    assert "is missing" in refused(form)
    for name in ("adapter_model.bin", "adapters.npz"):
        (form[1] / name).write_bytes(b"\x80\x04.")
        message = refused(form)
        assert name in message
        assert "may run code" in message
        (form[1] / name).unlink()
    file.write_bytes(whole)
    (form[1] / "adapter_config.json").unlink()
    assert "no adapter_config.json" in refused(form)
    shutil.rmtree(form[1])
    assert "does not exist" in refused(form)
    form[1].write_text("")
    assert "is a file" in refused(form)


MLX_LM_ONLY = pytest.mark.parametrize("form", ["mlx-lm"], indirect=True)


@MLX_LM_ONLY
def test_layers_are_counted_from_the_end(form: Form) -> None:
    names = [NAMES[form[0]][part].format(path)
             for part in "ab" for path in paths([0], QUERIES)]  # fmt: skip
    change_tensors(form, lambda tensors: [tensors.pop(name) for name in names])
    assert "layers.0" in refused(form)  # two were promised
    change_settings(form[1], None, num_layers=1)
    attach(form[2], read_adapter(form[1]))


@MLX_LM_ONLY
def test_layers_before_those_that_are_named(form: Form) -> None:
    change_settings(form[1], None, num_layers=1)
    assert "do not name: 'model.layers.0" in refused(form)


@MLX_LM_ONLY
def test_the_first_layer_is_not_the_last_one(form: Form) -> None:
    names = [NAMES[form[0]][part].format(path)
             for part in "ab" for path in paths([1], QUERIES)]  # fmt: skip
    change_tensors(form, lambda tensors: [tensors.pop(name) for name in names])
    change_settings(form[1], None, num_layers=1)
    assert "layers.1" in refused(form)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_of_the_header_never_gets_through_unnoticed(form: Form, data: Any) -> None:
    file = form[1] / FILES[form[0]]
    sound = file.read_bytes()
    length = 8 + int.from_bytes(sound[:8], "little")
    at, bit = data.draw(st.integers(0, length - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(sound)
    damaged[at] ^= 1 << bit
    file.write_bytes(damaged)
    read = outcome(form)
    file.write_bytes(sound)
    if isinstance(read, Adapter):  # it was in the padding, or in the metadata
        assert set(read.modules) == set(paths([0, 1], QUERIES))
