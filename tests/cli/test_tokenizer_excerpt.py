"""The texts that tokenizers are compared on: how much of each corpus, and in which groups."""

import gzip
import json
from pathlib import Path

import pytest

from mlxgpt.cli.tokenizer.excerpt import take_excerpt
from mlxgpt.data import Corpus, open_corpus


def corpus(folder: Path, **files: str) -> Corpus:
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text.encode())
    return open_corpus(folder)


def test_documents_are_taken_until_the_bytes_are_used_up(tmp_path: Path) -> None:
    files = corpus(tmp_path / "c", a_txt="one", b_txt="naïve", c_txt="three")
    taken = {n: [text for _, text in take_excerpt([files], n).texts] for n in (2, 3, 6, 7, 13, 14)}
    assert taken == {
        2: ["on"],
        3: ["one"],
        6: ["one", "na"],
        7: ["one", "naï"],
        13: ["one", "naïve", "thre"],
        14: ["one", "naïve", "three"],
    }
    assert [take_excerpt([files], n).is_cut for n in (3, 13, 14)] == [True, True, False]
    assert take_excerpt([files], 6).num_bytes == 5


def test_several_corpora_share_the_bytes_and_are_the_groups(tmp_path: Path) -> None:
    corpora = [corpus(tmp_path / name, a_txt=name * 9) for name in ("x", "y")]
    excerpt = take_excerpt(corpora, 10)
    assert excerpt.texts == (("x", "xxxxx"), ("y", "yyyyy"))
    assert (excerpt.grouped_by, excerpt.is_cut) == ("corpus", True)


def test_kinds_of_file_are_groups_packed_or_not(tmp_path: Path) -> None:
    corpus(tmp_path / "c", a_py="a", b_md="b", c_PY="c")
    with gzip.open(tmp_path / "c" / "d.py.gz", "wb") as file:
        file.write(b"d")
    excerpt = take_excerpt([open_corpus(tmp_path / "c")], 100)
    assert excerpt.texts == ((".py", "a"), (".md", "b"), (".py", "c"), (".py", "d"))
    assert excerpt.grouped_by == "kind of file"


def test_rare_kinds_are_one_group(tmp_path: Path) -> None:
    kinds = ["py", "md", "txt", "rst", "c", "rs", "js", "go", "ts"]
    excerpt = take_excerpt([corpus(tmp_path / "c", **{f"{k}_{k}": "x" for k in kinds})], 100)
    groups = [group for group, _ in excerpt.texts]
    assert len(set(groups)) == 8
    assert groups.count("other") == 2


@pytest.mark.parametrize("order", [1, -1])
def test_many_documents_of_a_kind_are_parted_into_tenths_by_length(
    tmp_path: Path, order: int
) -> None:
    lines = [json.dumps({"text": "x" * n}) for n in range(1, 31)][::order]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    excerpt = take_excerpt([open_corpus(tmp_path / "c.jsonl")], 10**6)
    assert [text for group, text in excerpt.texts if group == "2"] == ["x" * n for n in (4, 5, 6)]
    assert [text for group, text in excerpt.texts if group == "10"] == [
        "x" * n for n in (28, 29, 30)
    ]


def test_few_documents_of_a_kind_are_no_groups(tmp_path: Path) -> None:
    excerpt = take_excerpt([corpus(tmp_path / "c", a_txt="a", b_txt="b")], 100)
    assert excerpt.grouped_by is None
    assert {group for group, _ in excerpt.texts} == {""}
