"""Each value of an adapter_config.json may be anything: it is read, or refused in one line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from damage import Form, change_settings, outcome, refused

ODD = [None, True, -1, 0, 1.5, 2**40, 1e300, float("nan"), "x", "", "(", [], ["("], [[]], [1], {}]
ODD += [{"(": 1}, {"q_proj": None}, {"q_proj": "4"}, "\ud800", [True], "é\n\u2028"]


def places(form: Form) -> Iterator[tuple[str | None, str]]:
    content = json.loads((form[1] / "adapter_config.json").read_text())
    yield from ((None, key) for key in content)
    yield from (("lora_parameters", key) for key in content.get("lora_parameters", {}))


@pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")
def test_each_value_may_be_odd_and_is_read_or_refused_in_a_line(form: Form) -> None:
    file = form[1] / "adapter_config.json"
    sound, count = file.read_text(), 0
    for inside, key in list(places(form)):
        for value in ODD:
            file.write_text(sound)
            change_settings(form[1], inside, **{key: value})
            count += isinstance(outcome(form), str)
    assert count > (120 if form[0] == "peft" else 70)
    for text in ("", "[]", "{", "null", '{"peft_type": 1}', '{"r": 1e999}', "[" * 100_000):
        file.write_text(text)
        refused(form)


REFUSED: dict[str, Any] = {
    "peft_type": "LOHA",
    "bias": "all",
    "lora_bias": True,
    "fan_in_fan_out": True,
    "init_lora_weights": "pissa",
    "layer_replication": [[0, 1]],
    "trainable_token_indices": [1],
    "target_parameters": ["x"],
    "alora_invocation_tokens": [1],
    "use_qalora": True,
}


@pytest.mark.parametrize("form", ["peft"], indirect=True)
@pytest.mark.parametrize("key", REFUSED)
def test_what_is_not_computed_here_is_refused_by_name(form: Form, key: str) -> None:
    change_settings(form[1], None, **{key: REFUSED[key]})
    assert key in refused(form)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39, True, "1", None])
def test_a_strength_is_a_number(form: Form, value: Any) -> None:
    place, key = ("lora_parameters", "scale") if form[0] == "mlx-lm" else (None, "lora_alpha")
    change_settings(form[1], place, **{key: value})
    assert f"'{key}' must be a number" in refused(form)


@pytest.mark.parametrize("value", [1.0, -0.1, float("nan"), "0"])
def test_dropout_is_a_share(form: Form, value: Any) -> None:
    place, key = ("lora_parameters", "dropout") if form[0] == "mlx-lm" else (None, "lora_dropout")
    change_settings(form[1], place, **{key: value})
    assert f"'{key}' must be" in refused(form)


def test_what_has_to_be_there(form: Form) -> None:
    file = form[1] / "adapter_config.json"
    sound = file.read_text()
    names = {"mlx-lm": ["num_layers", "lora_parameters"], "peft": ["r", "target_modules"]}
    for key in names[form[0]]:
        content = json.loads(sound)
        del content[key]
        file.write_text(json.dumps(content))
        assert f"has no '{key}'" in refused(form)
