"""Files of rows: every usual form is read, what is odd is refused with its place."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxgpt.data.sft.forms import Completion, Conversation, Passage, recognise
from mlxgpt.data.sft.row_files import RawRow, read_rows
from mlxgpt.data.sft.row_folder import find_files
from mlxgpt.errors import DataError

ROW = {"text": "a"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


def written(tmp: Path, content: str | bytes, name: str = "r.jsonl") -> Path:
    file = tmp / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(objects, min_size=1, max_size=8), ascii_only=st.booleans(), gaps=st.booleans())
def test_lines_come_back_with_their_numbers(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], ascii_only: bool, gaps: bool
) -> None:
    text = "".join(
        json.dumps(row, ensure_ascii=ascii_only) + ("\r\n\n" if gaps else "\n") for row in rows
    )
    file = written(tmp_path_factory.mktemp("rows"), text)
    found = list(read_rows(file))
    assert [row.value for row in found] == rows
    assert [row.line for row in found] == [1 + i * (2 if gaps else 1) for i in range(len(rows))]


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(objects, min_size=1, max_size=6), indent=st.sampled_from([None, 1, 4]))
def test_an_array_comes_back_with_the_lines_of_its_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], indent: int | None
) -> None:
    text = json.dumps(rows, indent=indent, ensure_ascii=False)
    file = written(tmp_path_factory.mktemp("rows"), text, "r.json")
    found = list(read_rows(file))
    assert [row.value for row in found] == rows
    starts = [row.line for row in found]
    assert starts == sorted(starts)
    if indent is not None:
        for row in found:
            assert text.split("\n")[row.line - 1].lstrip().startswith("{")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_mark_and_odd_spaces_are_no_matter(tmp_path: Path, mark: bytes) -> None:
    content = mark + '{"text": "x\u2028y\u0085z"}\r\n\n   \n{"text": "b"}'.encode()
    found = list(read_rows(written(tmp_path, content)))
    assert [row.value["text"] for row in found] == ["x\u2028y\u0085z", "b"]
    assert [row.line for row in found] == [1, 4]


def test_packed_files_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, gzip.compress(b'{"text": "a"}\n'), "r.jsonl.gz")
    assert [row.value for row in read_rows(file)] == [ROW]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b'{"text": "caf\xe9"}\n', "r.jsonl", r"r\.jsonl:1: .*not UTF-8"),
        (b'{"text": "a"}\n{"text": "\n', "r.jsonl", r"r\.jsonl:2: not JSON"),
        (b'{"text": "a"} {"text": "b"}\n', "r.jsonl", r"r\.jsonl:1"),
        (b"", "r.jsonl", r"r\.jsonl"),
        (b"\n \n", "r.jsonl", r"r\.jsonl"),
        (b'[{"text": "a"}, {"text": ]', "r.json", r"r\.json:1"),
        (b'[\n{"text": "a"},\n{"text": nope}\n]', "r.json", r"r\.json:3"),
        (b"version https://git-lfs.github.com/spec/v1\noid x\n", "r.jsonl", "git-lfs"),
        (b'{"text": "a"}\n', "r.txt", r"\.jsonl"),
    ],
)
def test_damage_is_told_with_its_place(
    tmp_path: Path, content: bytes, name: str, said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        list(read_rows(written(tmp_path, content, name)))
    assert "\n" not in str(caught.value)


def test_a_folder_has_one_file_for_each_purpose(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no train\.jsonl"):
        find_files(tmp_path)
    train = written(tmp_path, "", "train.jsonl")
    assert find_files(tmp_path) == (train, None)
    valid = written(tmp_path, "", "validation.json")
    assert find_files(tmp_path) == (train, valid)
    written(tmp_path, "", "valid.jsonl.gz")
    with pytest.raises(DataError, match="has both"):
        find_files(tmp_path)


def form(value: Any) -> Any:
    return recognise(RawRow(Path("rows.jsonl"), 3, value))


CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    "value",
    [
        {"messages": CHAT},
        CHAT,
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"prompt": CHAT[:1], "completion": CHAT[1:]},
        {"messages": CHAT, "text": "made of it", "id": 7},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, CHAT[1]]},
    ],
)
def test_conversations(value: Any) -> None:
    found = form(value)
    assert isinstance(found, Conversation)
    assert [dict(message) for message in found.messages] == CHAT


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"prompt": "q", "completion": "a"}, Completion("q", "a")),
        ({"prompt": "q", "response": "a"}, Completion("q", "a")),
        ({"question": "q", "answer": "a"}, Completion("q", "a")),
        ({"instruction": "q", "output": "a"}, Completion("q", "a")),
        ({"instruction": "q", "input": "", "output": "a"}, Completion("q", "a")),
        ({"instruction": "q", "input": "i", "output": "a"}, Completion("q\n\ni", "a")),
        ({"text": "t"}, Passage("t")),
        ({"text": "t", "prompt": None}, Passage("t")),
    ],
)
def test_questions_and_texts(value: Any, wanted: Any) -> None:
    assert form(value) == wanted


def test_messages_of_weight_0_are_not_learned() -> None:
    found = form({"messages": [CHAT[0], {**CHAT[1], "weight": 0}, *CHAT]})
    assert found.unlearned == {1}
    assert form({"prompt": CHAT, "completion": CHAT}).unlearned == {1}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": 1}, "its fields are a"),
        (3, "must be an object or a list"),
        ({"text": 3}, "text"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "owner", "content": "x"}]}, "owner"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ({"prompt": 1, "completion": "x"}, "prompt"),
        ({"input_ids": [1, 2]}, "rows of ids"),
        ({"data": [{"text": "x"}]}, "'data' holds the rows"),
    ],
)
def test_other_shapes_are_refused_by_name(value: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        form(value)
    assert str(caught.value).startswith("rows.jsonl:3: ")
    assert "\n" not in str(caught.value)


FILES = Path(__file__).parents[3] / "shared" / "data" / "sft"
REFUSED = {
    "axolotl_conversation.tokenized_llama2chat.json": "rows of ids",
    "humaneval_example_problem.jsonl": "unknown kind of row",
    "humaneval_example_samples.jsonl": "unknown kind of row",
    "lfs_pointer_instead_of_lima.json": "git-lfs",
    "mlx-tune.LICENSE": "no file of rows",
    "mt_bench_question.jsonl": "unknown kind of row",
    "mt_bench_reference_gpt4.jsonl": "unknown kind of row",
    "synthetic_blank_and_truncated.jsonl": "not JSON",
    "synthetic_latin1.jsonl": "not UTF-8",
}


@pytest.mark.skipif(not FILES.exists(), reason="the files beside the project are not there")
def test_real_and_odd_files_are_read_or_refused_in_a_line() -> None:
    left = dict(REFUSED)
    for file in [*FILES.glob("*.json*"), *FILES.glob("mlx-*/*"), *(FILES / "odd").glob("*")]:
        if file.name not in REFUSED:
            assert [recognise(row) for row in read_rows(file)], file
            continue
        with pytest.raises(DataError, match=left.pop(file.name)) as caught:
            [recognise(row) for row in read_rows(file)]
        assert file.name in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not left
