"""Lines of a file of prompts: what they may say, and what is said of those that are wrong."""

import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from generation_runs import write_lines

from mlxgpt.cli.prompts_file import read_requests
from mlxgpt.errors import DataError, MLXGPTWarning
from mlxgpt.infer.sampling import SamplingParams

PLAIN = SamplingParams(temperature=0.5, max_tokens=9, seed=3)


def read(folder: Path, *lines: Any, params: SamplingParams = PLAIN) -> list[Any]:
    return read_requests(str(write_lines(folder / "p.jsonl", lines)), params)


def test_a_line_has_the_settings_of_the_command_and_its_own_over_them(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "b"}]
    plain, chat, own = read(
        tmp_path,
        {"prompt": "a"},
        {"messages": messages, "id": 7},
        {"prompt": "", "temperature": 1, "max_tokens": 2, "top_k": 5, "top_p": 0.5, "min_p": 0.1}
        | {"stop": "x", "n": 2, "seed": 11, "repetition_penalty": 1.5, "presence_penalty": 1}
        | {"frequency_penalty": 0.5, "stop_ids": [4], "logprobs": 2, "logit_bias": {"3": -1}},
    )
    assert (plain.text, plain.messages, plain.line) == ("a", None, 1)
    assert (plain.params.temperature, plain.params.max_tokens) == (0.5, 9)
    assert (chat.text, chat.messages, chat.given["id"]) == (None, messages, 7)
    params = own.params
    assert (params.temperature, params.max_tokens, params.top_k, params.top_p) == (1, 2, 5, 0.5)
    assert (params.min_p, tuple(params.stop), params.n, params.seed) == (0.1, ("x",), 2, 11)
    assert (params.repetition_penalty, params.presence_penalty) == (1.5, 1)
    assert (params.frequency_penalty, set(params.stop_ids)) == (0.5, {4})
    assert params.logprobs == 2
    assert dict(params.logit_bias) == {3: -1}


def test_seeds_depend_on_the_number_of_the_line_alone(tmp_path: Path) -> None:
    first = [r.params.seed for r in read(tmp_path, {"prompt": "a"}, {"prompt": "a"})]
    assert len(set(first)) == 2
    other = read(tmp_path, {"prompt": "b"}, "", {"prompt": "c"}, {"prompt": "a", "seed": None})
    assert [r.line for r in other] == [1, 3, 4]
    assert other[0].params.seed == first[0]
    assert other[1].params.seed not in first
    assert read(tmp_path, {"prompt": "a"}, params=SamplingParams(seed=4))[0].params.seed != first[0]
    assert all(0 <= seed < 2**53 for seed in first)


def test_what_else_stands_in_a_line_is_kept(tmp_path: Path) -> None:
    line = {"prompt": "\ud83d", "mine": {"a": [1, None, "\u2028"]}, "prompt_id": 3, "name": "x"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, line)[0].given == line


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("temprature", "temperature"), ("Temperature", "temperature"), ("topK", "top_k"),
        ("max-tokens", "max_tokens"), ("tokens", "max_tokens"), ("max_new_tokens", "max_tokens"),
        ("stops", "stop"), ("num_samples", "n"),
    ],
)  # fmt: skip
def test_a_misspelled_setting_is_told_of_once(key: str, meant: str, tmp_path: Path) -> None:
    with pytest.warns(MLXGPTWarning) as told:
        read(tmp_path, {"prompt": "a"}, {"prompt": "a", key: 1}, {"prompt": "b", key: 1})
    assert len(told) == 1
    assert f"line 2: '{key}' is kept, and has no effect; '{meant}' would" in str(told[0].message)


def test_one_id_for_two_lines_is_told_of(tmp_path: Path) -> None:
    with pytest.warns(MLXGPTWarning, match="lines 1 and 3 have one id, 'a'"):
        read(tmp_path, {"prompt": "a", "id": "a"}, {"prompt": "a"}, {"prompt": "a", "id": "a"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"), ("[1]", "is a list"), ('"a"', "is a text"), ("null", "is null"),
        ("{} {}", "is not JSON"), ("{}", "neither 'prompt' nor 'messages'"),
        ({"prompts": "a"}, "is 'prompts' meant"), ({"prompt": 3}, "'prompt' must be a text; got 3"),
        ({"prompt": None}, "'prompt' must be a text; got null"),
        ({"prompt": "a", "messages": [{}]}, "both 'prompt' and 'messages'"),
        ({"messages": []}, "'messages' must be a list"), ({"messages": "a"}, "must be a list"),
        ({"prompt": "a", "id": [1]}, "'id' must be a text or a number"),
        ({"prompt": "a", "id": True}, "'id' must be a text or a number"),
        ({"prompt": "a", "text": "b"}, "has 'text'"), ({"prompt": "a", "line": 1}, "has 'line'"),
        ({"prompt": "a", "temperature": -1}, "'temperature'"),
        ({"prompt": "a", "top_k": 0}, "'top_k'"),
        ({"prompt": "a", "temperature": "1"}, "'temperature' must be a finite number"),
        ({"prompt": "a", "max_tokens": 1.5}, "'max_tokens' must be a whole number"),
        ({"prompt": "a", "n": True}, "'n' must be a whole number"),
        ({"prompt": "a", "n": 0}, "'n'"),
        ({"prompt": "a", "stop": 1}, "'stop'"), ({"prompt": "a", "stop": ["a", 1]}, "'stop'"),
        ({"prompt": "a", "stop": ""}, "stop"), ({"prompt": "a", "stop_ids": "3"}, "'stop_ids'"),
        ({"prompt": "a", "logit_bias": {"x": 1}}, "'logit_bias'"),
        ({"prompt": "a", "seed": "x"}, "'seed'"),
        ('{"prompt": "a", "prompt": "b"}', "'prompt' stands in it twice"),
        ('{"prompt": "a", "x": NaN}', "NaN is no number"),
        ('{"prompt": "a", "x": ' + "[" * 100_000 + "}", "cannot be used"),
        ('{"prompt": "a", "x": ' + "1" * 5000 + "}", "cannot be used"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_with_its_place(line: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read(tmp_path, {"prompt": "good"}, "", line)
    assert str(refused.value).startswith(f"{tmp_path / 'p.jsonl'}, line 3")
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400 + len(str(tmp_path))


def test_bytes_that_are_no_text_and_files_without_prompts(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}')
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 \(at byte 12\)"):
        read_requests(str(file), PLAIN)
    for empty in (b"", b"\n \n", b"\xef\xbb\xbf\n"):
        file.write_bytes(empty)
        with pytest.raises(DataError, match="has no prompts"):
            read_requests(str(file), PLAIN)
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n')
    assert read_requests(str(file), PLAIN)[0].text == "a"
    with pytest.raises(FileNotFoundError):
        read_requests(str(tmp_path / "none"), PLAIN)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.dumps({"prompt": "a"}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw + b"\n{")))
    with pytest.raises(DataError, match=r"^standard input, line 2 is not JSON"):
        read_requests("-", PLAIN)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert read_requests("-", PLAIN)[0].text == "a"
