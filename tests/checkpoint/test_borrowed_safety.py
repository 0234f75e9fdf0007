"""Folders that are shown to mlx-lm only after a look, or not at all."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from borrowed_cases import CASES, edit, make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxgpt.checkpoint import BorrowedModel, load_model
from mlxgpt.errors import CheckpointError

IDS = mx.array([[1, 5, 9, 33, 60]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "m", "phi3")
    return tmp_path / "m"


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def tensors_of(directory: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    return tensors


def test_code_in_a_folder_never_runs(folder: Path) -> None:
    marker = folder / "it-ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: ...\n")
    edit(folder, auto_map={"AutoModelForCausalLM": "evil.Model"}, architectures=["Evil"])
    assert isinstance(load_model(folder), BorrowedModel)
    edit(folder, model_file="evil.py")
    assert "code of its own ('model_file'), which is never done" in refused(folder)
    edit(folder, model_type="evil", model_file=None)
    assert "knows architecture 'evil'" in refused(folder)
    assert not marker.exists()


def test_a_family_of_ours_with_a_foreign_part_is_not_passed_on(folder: Path) -> None:
    """mlx-lm would leave the part out without a word."""
    from mlxgpt.checkpoint.foreign import ForeignArchitecture

    edit(folder, model_type="llama", attn_logit_softcapping=50.0)
    with pytest.raises(CheckpointError, match="attn_logit_softcapping") as caught:
        load_model(folder)
    assert not isinstance(caught.value, ForeignArchitecture)


def test_a_foreign_gguf_is_refused(tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "phi3")
    writer.add_tensor("token_embd.weight", np.ones((40, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    message = refused(tmp_path / "a.gguf")
    assert "'phi3' is not mlxgpt's own, and mlx-lm, which runs others, reads no GGUF" in message


def test_exactly_the_files_of_the_index_are_read(folder: Path) -> None:
    tensors, expected = tensors_of(folder), load_model(folder)(IDS)
    names = sorted(tensors)
    files = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        part = {name: tensors[name] for name in names if files[name] == file}
        mx.save_safetensors(str(folder / file), part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    stray = {name: array * 0 for name, array in tensors.items()}
    mx.save_safetensors(str(folder / "model-other.safetensors"), stray)
    (folder / "model.safetensors").unlink()
    assert mx.array_equal(load_model(folder)(IDS), expected).item()
    (folder / "part-1.safetensors").unlink()
    assert "part-1.safetensors" in refused(folder)


def test_damaged_and_missing_weights_are_named(folder: Path) -> None:
    tensors, file = tensors_of(folder), folder / "model.safetensors"
    name = "model.layers.1.mlp.down_proj.weight"

    def with_changes(changes: dict[str, mx.array | None]) -> str:
        changed = tensors | changes
        kept = {n: w for n, w in changed.items() if w is not None}
        mx.save_safetensors(str(file), kept)
        return refused(folder)

    assert name in with_changes({name: None})
    assert "model.odd.weight" in with_changes({"model.odd.weight": mx.zeros((2, 2))})
    assert name in with_changes({name: tensors[name].T})
    for bad in (float("nan"), float("inf")):
        poisoned = np.array(tensors[name])
        poisoned[3, 4] = bad
        assert f"'{name}' holds NaN or infinite numbers" in with_changes({name: mx.array(poisoned)})
    mx.save_safetensors(str(file), tensors)
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    assert "model.safetensors" in refused(folder)
    file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "pickle" in refused(folder)


def test_no_more_layers_are_made_than_there_can_be(folder: Path) -> None:
    edit(folder, num_hidden_layers=2000)
    message = refused(folder)
    assert "num_hidden_layers = 2000, and there are " in message


def test_settings_that_only_a_longer_text_asks_for_are_looked_at_too(folder: Path) -> None:
    make(folder, "gemma3_text")
    edit(folder, sliding_window="x")
    assert "cannot make a 'gemma3_text' of it: TypeError" in refused(folder)


NUMBERS: list[Any] = [0, -1, 1, 3, 2**31, 2**64, 10**30, 1.5, float("nan"), True]
ODD: list[Any] = [*NUMBERS, None, "x", "", [], [1], {}, {"a": 1}]


@pytest.mark.parametrize("model_type", ["phi3", "mixtral", "gpt_neox", "gemma3_text"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_settings_are_refused_in_one_line(
    model_type: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("odd")
    make(directory, model_type)
    keys = [*CASES[model_type], "rope_scaling", "rope_parameters", "quantization", "text_config"]
    edit(directory, **{data.draw(st.sampled_from(keys)): data.draw(st.sampled_from(ODD))})
    message = ""
    try:
        model = load_model(directory)
    except CheckpointError as e:
        message = str(e)
    else:  # what it does not mind must leave a network that runs
        assert isinstance(model, BorrowedModel)
        assert model.vocab == 61
    assert (str(directory) in message) == (message != "")
    assert "\n" not in message
