"""Which modules PEFT's settings name, by peft's own rules; hostile patterns come to an end."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_adapters import ALL, paths

from mlxgpt.checkpoint.adapters.peft_targets import PatternValues, PEFTTargets
from mlxgpt.checkpoint.adapters.settings import Settings
from mlxgpt.errors import CheckpointError

MODULES = [*paths(range(12), ALL), "model.embed_tokens", "lm_head"]


def targets(**content: Any) -> PEFTTargets:
    return PEFTTargets.read(Settings(content, "adapter_config.json"))


def named(**content: Any) -> list[str]:
    mine = targets(**content)
    return [path for path in MODULES if mine.names(path, 12)]


def test_the_ways_of_naming() -> None:
    assert named(target_modules=["q_proj"]) == paths(range(12), ["self_attn.q_proj"])
    assert named(target_modules=["proj"]) == []
    assert named(target_modules=["lm_head"]) == ["lm_head"]
    assert named(target_modules="all-linear") == paths(range(12), ALL)
    assert named(target_modules=r".*\.1\.mlp.*") == paths([1], ALL[4:])
    assert named(target_modules=["up_proj"], layers_to_transform=1) == paths([1], ["mlp.up_proj"])
    layers = {"layers_to_transform": [1, 11], "layers_pattern": "layers"}
    assert named(target_modules=["up_proj"], **layers) == paths([1, 11], ["mlp.up_proj"])
    layers["layers_pattern"] = "blocks"
    assert named(target_modules=["up_proj"], **layers) == []
    assert named(target_modules=["q_proj", "lm_head"], modules_to_save=["lm_head"]) == paths(
        range(12), ["self_attn.q_proj"]
    )


NAMES = st.sampled_from(
    ["q_proj", "self_attn.v_proj", "proj", "lm_head", "embed_tokens", "model.layers.1.mlp.up_proj"]
)
PATTERNS = st.sampled_from([r".*q_proj", r".*\.1\..*", "layers", r"model.layers.1+.mlp.up_proj"])


@given(
    modules=st.one_of(st.lists(NAMES, min_size=1), PATTERNS),
    excluded=st.one_of(st.none(), st.lists(NAMES), PATTERNS),
    layers=st.one_of(st.none(), st.integers(0, 11), st.lists(st.integers(0, 11))),
    pattern=st.one_of(st.none(), st.sampled_from(["layers", "blocks", ["h", "layers"]])),
    saved=st.one_of(st.none(), st.lists(st.sampled_from(["lm_head", "mlp", "embed_tokens"]))),
)
def test_the_rules_are_those_of_peft(
    modules: Any, excluded: Any, layers: Any, pattern: Any, saved: Any
) -> None:
    peft = pytest.importorskip("peft")
    from peft.tuners.tuners_utils import check_target_module_exists

    if isinstance(modules, str) or layers in (None, []):
        layers = pattern = None
    content = {
        "target_modules": modules, "exclude_modules": excluded, "layers_to_transform": layers,
        "layers_pattern": pattern, "modules_to_save": saved,
    }  # fmt: skip
    config = peft.LoraConfig(**content)
    theirs = []
    for path in MODULES:
        answer = check_target_module_exists(config, path)
        if answer and type(answer).__name__ != "_ExcludedModule":
            theirs.append(path)
    assert named(**content) == theirs


@given(st.dictionaries(st.one_of(NAMES, PATTERNS), st.integers(1, 64)))
def test_the_first_pattern_that_fits_gives_the_value(patterns: dict[str, int]) -> None:
    pytest.importorskip("peft")
    from peft.utils.other import get_pattern_key

    values = PatternValues(patterns, "adapter_config.json")
    for path in MODULES:
        assert values.get(path, 8) == patterns.get(get_pattern_key(list(patterns), path), 8)


@pytest.mark.parametrize("pattern", ["(", "a{1000000000000}", "*", "(?P<layer", "x" * 30_000])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(CheckpointError, match="is none"):
        targets(target_modules=pattern).match(MODULES[0])
    with pytest.raises(CheckpointError, match="is none"):
        PatternValues({pattern: 1.0}, "adapter_config.json")


EVIL = r"(?:(?:\w|\.|[a-z])+)+[A-Z]"


@pytest.mark.slow
def test_a_pattern_that_would_take_for_ever_is_refused() -> None:
    with pytest.raises(CheckpointError, match="too long"):
        targets(target_modules=EVIL).match(MODULES[0])
    with pytest.raises(CheckpointError, match="too long"):
        PatternValues({EVIL: 1.0}, "adapter_config.json").get(MODULES[0], 1.0)


def test_a_pattern_for_each_of_many_modules_is_quick_enough() -> None:
    modules = paths(range(60), ALL)
    values = PatternValues({path: i + 1.0 for i, path in enumerate(modules)}, str(Path("a")))
    assert [values.get(path, 0.0) for path in modules] == [i + 1.0 for i in range(len(modules))]
