"""Settings from files and flags: strict, exact, and the same after a round trip."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.config import build, dump_yaml, load_yaml, merge, parse_assignment, to_dict
from mlxgpt.data import DataConfig
from mlxgpt.errors import ConfigError
from mlxgpt.model import GPTConfig
from mlxgpt.train import OptimizerConfig, TokenizerConfig, TrainConfig, assemble


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: int
    kind: Literal["red", "green"] = "red"
    limit: int | None = None
    loud: bool = False
    title: str = ""
    inner: Inner = field(default_factory=Inner)


def yaml_file(folder: Path, text: str | bytes) -> Path:
    file = folder / "settings.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_values_of_the_right_type_are_taken() -> None:
    values = {
        "size": 3.0,
        "kind": "green",
        "limit": None,
        "loud": True,
        "inner": {"rate": 1, "names": ["a", "b"]},
    }
    outer = build(Outer, values)
    assert outer == Outer(size=3, kind="green", loud=True, inner=Inner(rate=1.0, names=("a", "b")))
    assert type(outer.size) is int
    assert type(outer.inner.rate) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": 1, "knd": "red"}, "unknown setting 'knd'; did you mean 'kind'?"),
        ({"size": 1, "inner": {"rte": 1}}, "unknown setting 'inner.rte'; did you mean 'rate'?"),
        ({"size": 1, "zzz": 1}, "unknown setting 'zzz'; known: inner, kind, limit, loud, size"),
        ({"size": 1, 5: 1}, "unknown setting '5'"),
        ({}, "missing setting 'size'"),
        ({"size": 1.5}, "'size' must be a whole number; got 1.5"),
        ({"size": "1"}, "'size' must be a whole number; got '1'"),
        ({"size": True}, "'size' must be a whole number; got True"),
        ({"size": None}, "'size' must be a whole number; got None"),
        ({"size": math.inf}, "'size' must be a whole number; got inf"),
        ({"size": 1, "limit": "x"}, "'limit' must be a whole number; got 'x'"),
        ({"size": 1, "kind": "blue"}, "'kind' must be one of red, green; got 'blue'"),
        ({"size": 1, "kind": ["red"]}, "'kind' must be one of red, green"),
        ({"size": 1, "loud": 1}, "'loud' must be true or false; got 1"),
        ({"size": 1, "title": 7}, "'title' must be a text; got 7"),
        ({"size": 1, "inner": 3}, "'inner' must be a group of settings; got 3"),
        ({"size": 1, "inner": None}, "'inner' must be a group of settings; got None"),
        ({"size": 1, "inner": {"rate": "fast"}}, "'inner.rate' must be a number; got 'fast'"),
        ({"size": 1, "inner": {"rate": math.nan}}, "'inner.rate' must be a finite number; got nan"),
        ({"size": 1, "inner": {"rate": 10**400}}, "'inner.rate' must be a finite number"),
        ({"size": 1, "inner": {"names": "ab"}}, "'inner.names' must be a list; got 'ab'"),
        ({"size": 1, "inner": {"names": [1]}}, "'inner.names[0]' must be a text; got 1"),
    ],
)
def test_anything_else_is_refused_by_name(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Outer, values)
    assert message in str(caught.value)


def test_exponents_are_numbers(tmp_path: Path) -> None:
    text = "a: 1e-5\nb: 1E6\nc: -2.5e-3\nd: .5e1\ne: '1e-5'\nf: 1e\ng: 1e5x\nh: 3\n"
    read = load_yaml(yaml_file(tmp_path, text))
    assert read == {
        "a": 1e-5, "b": 1e6, "c": -2.5e-3, "d": 5.0, "e": "1e-5", "f": "1e", "g": "1e5x", "h": 3,
    }  # fmt: skip


def test_an_empty_file_holds_no_settings(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "---\n"):
        assert load_yaml(yaml_file(tmp_path, text)) == {}


def test_anchors_may_be_merged_and_overridden(tmp_path: Path) -> None:
    read = load_yaml(yaml_file(tmp_path, "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  b: 3\n"))
    assert read["d"] == {"b": 3, "c": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must hold 'key: value' lines, got list"),
        ("just words", "must hold 'key: value' lines, got str"),
        ("steps: 1\nseed: 2\nsteps: 3\n", "'steps' stands twice, again in line 3"),
        ("model:\n  n_layer: 1\n  n_layer: 2\n", "'n_layer' stands twice, again in line 3"),
        ("a: [1, 2\nb: 3\n", "is not YAML"),
        ("a: 2001-02-30\n", "is not YAML"),
        ("a: " + "[" * 5000, "is not YAML"),
        ("? [a]\n: 1\n", "unhashable"),
        ("a: !!python/object:os.system {}\n", "is not YAML"),
        (b"a: \xff\xfe\n", "cannot read the config file"),
    ],
    ids=lambda t: str(t)[:20],
)
def test_a_file_that_is_no_mapping_is_refused(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    file = yaml_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value) or "stands twice" in message
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot read the config file"):
            load_yaml(path)


def test_assignments() -> None:
    assert parse_assignment("steps=5") == {"steps": 5}
    assert parse_assignment("optimizer.max_lr=1e-3") == {"optimizer": {"max_lr": 1e-3}}
    assert parse_assignment("a.b.c=true") == {"a": {"b": {"c": True}}}
    assert parse_assignment("a=null") == parse_assignment("a=") == {"a": None}
    assert parse_assignment("a=x=y") == {"a": "x=y"}
    assert parse_assignment("a='1e5'") == {"a": "1e5"}
    assert parse_assignment("a=[1, 2]") == {"a": [1, 2]}


@pytest.mark.parametrize(
    "text",
    ["", "steps", "=5", ".a=1", "a.=1", "a..b=1", "a=[1", "a={", "a=2001-02-30", "a=b: c: d"],
)
def test_what_is_no_assignment_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_assignment(text)
    assert "--set" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_later_layers_win_leaf_by_leaf() -> None:
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(first, {"a": {"c": 4}}, {"d": None}) == {"a": {"b": 1, "c": 4}, "d": None}
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert first == {"a": {"b": 1, "c": 2}, "d": 3}


nested = st.recursive(
    st.integers(), lambda x: st.dictionaries(st.sampled_from("abc"), x, max_size=3), max_leaves=8
)
trees = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)


@given(trees, trees, trees)
def test_merging_is_associative(a: Any, b: Any, c: Any) -> None:
    assert merge(a, merge(b, c)) == merge(merge(a, b), c) or _has_clash(a, b, c)
    assert merge(a, {}) == merge({}, a) == a


def _has_clash(*trees: Any) -> bool:
    """Whether a leaf stands where another tree has a group: there the order of merging counts."""
    kinds: dict[tuple[str, ...], set[bool]] = {}

    def walk(tree: Any, path: tuple[str, ...]) -> None:
        kinds.setdefault(path, set()).add(isinstance(tree, dict))
        if isinstance(tree, dict):
            for key, value in tree.items():
                walk(value, (*path, key))

    for tree in trees:
        walk(tree, ())
    return any(len(k) == 2 for k in kinds.values())


def test_what_comes_later_wins(tmp_path: Path) -> None:
    """Defaults < preset of the file < file < preset of the flags < flags < --set."""
    corpus = {"data.corpus": "x"}

    def width(
        file: str = "", preset: str | None = None, flag: int | None = None, set_: str = ""
    ) -> int:
        path = yaml_file(tmp_path, file) if file else None
        flags = {**corpus, "model.n_embd": flag}
        return assemble(path, preset, flags, [set_] if set_ else []).model.n_embd

    in_file = "preset: 3m\nmodel: {n_embd: 96, n_head: 4}\n"
    assert width() == GPTConfig().n_embd == 128
    assert width("preset: 3m\n") == 192
    assert width(in_file) == 96
    assert width(in_file, preset="10m") == 384
    assert width(in_file, preset="10m", flag=60) == 60
    assert width(in_file, preset="10m", flag=60, set_="model.n_embd=120") == 120


def test_a_preset_replaces_the_whole_shape(tmp_path: Path) -> None:
    whole = TrainConfig(data=DataConfig(corpus="x"), model=GPTConfig(n_embd=64, n_head=4))
    file = yaml_file(tmp_path, dump_yaml(whole))
    wanted = assemble(None, "10m", {"data.corpus": "x"}, []).model
    assert assemble(file, "10m", {}, []).model == wanted
    assert wanted.head_dim == 64


def test_settings_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for file, preset, flags, sets, message in (
        ("", None, {}, [], "no corpus: give --corpus"),
        ("data: 5\n", None, {}, [], "no corpus"),
        ("preset: 11m\ndata: {corpus: x}\n", None, {}, [], "unknown preset '11m'; did you mean"),
        ("preset: 0\ndata: {corpus: x}\n", None, {}, [], "unknown preset '0'"),
        ("", "", {"data.corpus": "x"}, [], "unknown preset ''"),
        ("", "9b", {"data.corpus": "x"}, [], "unknown preset '9b'"),
        ("", None, {"data.corpus": "x"}, ["model=3"], "'model' must be a group of settings"),
        ("", None, {"data.corpus": "x"}, ["optimizer.lr=3"], "unknown setting 'optimizer.lr'"),
        (
            "tokenizer: {source: char}\n",
            None,
            {"data.corpus": "x", "tokenizer.vocab_size": 300},
            [],
            "'tokenizer.vocab_size' is for a bpe tokenizer",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            assemble(yaml_file(tmp_path, file) if file else None, preset, flags, sets)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0),
        ("steps", -5),
        ("micro_batch_size", 0),
        ("grad_accum_steps", 0),
        ("eval_every", 0),
        ("save_every", -1),
        ("val_tokens", 0),
        ("workers", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dtype", "float16"),
        ("seed", 0.5),
        ("model.n_embd", 30),
        ("model.n_kv_head", 3),
        ("model.n_head", 0),
        ("model.max_seq_len", 0),
        ("model.head_dim", 3),
        ("model.rope_theta", 0),
        ("model.rms_norm_eps", "inf"),
        ("tokenizer.vocab_size", 10),
        ("tokenizer.source", ""),
        ("optimizer.name", "sgd"),
        ("optimizer.max_lr", 0),
        ("optimizer.max_lr", math.nan),
        ("optimizer.max_lr", math.inf),
        ("optimizer.muon_lr", math.inf),
        ("optimizer.lr_schedule", "step"),
        ("optimizer.warmup_steps", -1),
        ("optimizer.warmup_steps", 1001),
        ("optimizer.min_lr_ratio", 1.5),
        ("optimizer.beta1", 1.0),
        ("optimizer.beta2", -0.1),
        ("optimizer.eps", 0),
        ("optimizer.weight_decay", -1),
        ("optimizer.grad_clip", -1),
        ("optimizer.muon_momentum", 1.0),
        ("data.val_fraction", 0),
        ("data.val_fraction", 1),
        ("data.split", "middle"),
        ("data.text_field", ""),
    ],
)
def test_values_out_of_range_are_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        assemble(None, None, {"data.corpus": "x", setting: value}, [])
    assert setting.split(".")[-1] in str(caught.value)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
looks_like_something_else = st.sampled_from(
    [
        "1e5",
        "1.5",
        "true",
        "null",
        "~",
        "2001-01-01",
        "0x1f",
        "- a",
        "a: b",
        "#",
        "'",
        "1_000",
        ".5e3",
    ]
)
shares = st.floats(0.01, 0.99)
positive = st.floats(1e-30, 1e30)
configs = st.builds(
    TrainConfig,
    data=st.builds(DataConfig, corpus=words | looks_like_something_else, val_fraction=shares),
    tokenizer=st.builds(
        TokenizerConfig, source=(words | looks_like_something_else).filter(lambda s: s != "bpe")
    )
    | st.builds(
        TokenizerConfig,
        source=st.just("bpe"),
        vocab_size=st.none() | st.integers(257, 10**6),
        pattern=st.none() | words | looks_like_something_else,
    ),
    model=st.builds(
        GPTConfig,
        n_layer=st.integers(1, 99),
        n_embd=st.sampled_from([16, 64, 96]),
        n_head=st.sampled_from([2, 4, 8]),
        n_kv_head=st.sampled_from([None, 1, 2]),
        vocab_size=st.none() | st.integers(1, 10**6),
        rope_theta=st.floats(1, 1e6),
        tie_embeddings=st.booleans(),
    ),
    optimizer=st.builds(
        OptimizerConfig,
        name=st.sampled_from(["adamw", "muon"]),
        max_lr=st.none() | positive,
        lr_schedule=st.sampled_from(["constant", "cosine", "linear", "wsd"]),
        warmup_steps=st.none() | st.just(0),
        beta1=shares,
        eps=positive,
    ),
    steps=st.integers(1, 10**9),
    dropout=shares,
    seed=st.integers(-(2**70), 2**70),
    init_from=st.none() | words,
    workers=st.none() | st.integers(1, 64),
)


@given(configs)
def test_a_config_survives_dicts_and_yaml(tmp_path_factory: Any, config: TrainConfig) -> None:
    assert build(TrainConfig, to_dict(config)) == config
    file = tmp_path_factory.getbasetemp() / "round-trip.yaml"
    file.write_text(dump_yaml(config), encoding="utf-8")
    assert build(TrainConfig, load_yaml(file)) == config
