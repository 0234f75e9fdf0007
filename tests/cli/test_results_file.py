"""The file of results: whatever a killed run leaves, the next one makes the same bytes of it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.cli.prompts_file import Request
from mlxgpt.cli.results_file import ResultsFile, ResultsInOrder, json_line
from mlxgpt.errors import DataError
from mlxgpt.infer.sampling import SamplingParams


def requests(*choices: int) -> list[Request]:
    """A request for each number, which is how many texts it asks for; lines 2, 4, 6..."""
    return [
        Request(2 * i + 2, {"prompt": f"p{i}", "id": i}, SamplingParams(n=n))
        for i, n in enumerate(choices)
    ]


def results(request: Request, key: str = "k") -> list[dict[str, Any]]:
    return [
        {"line": request.line, **request.given, "choice": choice, "text": "ä\u2028" * choice}
        | {"request": key}
        for choice in range(request.params.n)
    ]


def keys(asked: Sequence[Request], key: str = "k") -> dict[int, str]:
    return {request.line: key for request in asked}


def whole(asked: Sequence[Request]) -> bytes:
    return b"".join(json_line(r) for request in asked for r in results(request))


def refusal(path: Path, asked: Sequence[Request], key: str = "k") -> str:
    """Check that a file is refused and left as it was; return why."""
    before = path.read_bytes()
    with pytest.raises(DataError) as refused, closing(ResultsFile(path, asked)) as file:
        file.resume(keys(asked, key))
    assert path.read_bytes() == before
    return str(refused.value)


def test_results_come_at_once_and_end_in_the_order_of_the_requests(tmp_path: Path) -> None:
    asked = requests(1, 2, 1)
    path = tmp_path / "out.jsonl"
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == set()
        file.put(results(asked[2]))
        assert path.read_bytes() == whole(asked[2:])
        file.put(results(asked[0]))
        file.put(results(asked[1]))
        file.finish()
    assert path.read_bytes() == whole(asked)
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == {2, 4, 6}
        file.finish()
    assert path.read_bytes() == whole(asked)


@given(data=st.data())
def test_a_killed_run_goes_on_from_any_byte(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("killed") / "out.jsonl"
    asked = requests(*data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    for _ in range(3):
        with ResultsFile(path, asked) as file:
            done = file.resume(keys(asked))
            kept = path.read_bytes()
            lines = [json.loads(line)["line"] for line in kept.split(b"\n") if line]
            assert set(lines) == done
            left = [request for request in asked if request.line not in done]
            for request in data.draw(st.permutations(left)):
                file.put(results(request))
            written = path.read_bytes()
        path.write_bytes(written[: data.draw(st.integers(0, len(written)))])
    with ResultsFile(path, asked) as file:
        for request in asked:
            if request.line not in file.resume(keys(asked)):
                file.put(results(request))
        file.finish()
    assert path.read_bytes() == whole(asked)


def test_a_request_of_which_texts_are_missing_is_done_again(tmp_path: Path) -> None:
    asked = requests(1, 3)
    path = tmp_path / "out.jsonl"
    path.write_bytes(whole(asked)[: -len(json_line(results(asked[1])[2]))])
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == {2}
    assert path.read_bytes() == whole(asked[:1])


def test_what_failed_is_done_again(tmp_path: Path) -> None:
    asked = requests(1, 1, 1)
    path = tmp_path / "out.jsonl"
    failed = {"line": 2, **asked[0].given, "choice": 0, "error": "too long", "request": "k"}
    path.write_bytes(json_line(failed) + whole(asked[1:2]))
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == {4}
        file.put(results(asked[2]))
        file.put(results(asked[0]))
        file.finish()
    assert path.read_bytes() == whole(asked)


def test_what_failed_may_have_other_settings_now(tmp_path: Path) -> None:
    """Its message may have said to ask for less."""
    asked = requests(1, 1)
    path = tmp_path / "out.jsonl"
    with ResultsFile(path, asked) as file:
        file.resume(keys(asked))
        file.put(results(asked[0]))
        file.put([{**results(asked[1])[0], "error": "too long"}])
    with ResultsFile(path, asked) as file:
        assert file.resume({2: "k", 4: "other"}) == {2}
        file.put(results(asked[1]))
        file.finish()
    assert path.read_bytes() == whole(asked)


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    """And what was finished before is there for the next run."""
    script = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_results_file import ResultsFile, keys, requests, results
from mlxgpt.errors import DataError
asked = requests(1, 1)
with ResultsFile(Path(sys.argv[2]), asked) as file:
    file.resume(keys(asked))
    file.put(results(asked[0]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        file.put(results(asked[1]))
    except DataError as e:
        print(e)
"""
    path, asked = tmp_path / "out.jsonl", requests(1, 1)
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"cannot write {path}: File too large" in run.stdout
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == {2}


def test_new_prompts_may_have_come(tmp_path: Path) -> None:
    asked = requests(1, 1, 1)
    path = tmp_path / "out.jsonl"
    path.write_bytes(whole(asked[:2]))
    with ResultsFile(path, asked) as file:
        assert file.resume(keys(asked)) == {2, 4}


def test_what_belongs_to_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    asked = requests(1, 1)
    path = tmp_path / "out.jsonl"
    good = whole(asked)
    line = results(asked[0])[0]
    for foreign, words in (
        (b"my notes", "is no result of mlxgpt generate"),
        (b"my notes\n", "is no result"),
        (b'{"a": 1}\n', "is no result"),
        (b"\n", "is no result"),
        (good + b"\x00\x00\n", "line 3, is no result"),
        (json_line(line | {"line": 3}), "line 3, which has no prompt"),
        (json_line(line | {"prompt": "q"}), "another 'prompt' than line 2"),
        (json_line(line | {"id": 9}), "another 'id' than line 2"),
        (json_line(line | {"choice": "0"}), "is no result"),
        (good + json_line(line), "is there already"),
    ):
        path.write_bytes(foreign)
        reason = refusal(path, asked)
        assert words in reason
        assert str(path) in reason
    path.write_bytes(good)
    assert "another model or other settings (such as that of line 2)" in refusal(path, asked, "j")
    path.write_bytes(good[:-3])
    assert "another model or other settings" in refusal(path, asked, "j")


def test_fewer_texts_than_before_are_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(whole(requests(3)))
    assert "other settings" in refusal(path, requests(1), "j")
    path.write_bytes(whole(requests(1)))
    assert "other settings" in refusal(path, requests(3), "j")


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    asked = requests(1, 1)
    path = tmp_path / "out.jsonl"
    path.write_bytes(whole(asked)[:-3])
    with ResultsFile(path, asked) as file:
        with pytest.raises(DataError, match="another run is writing to"):
            ResultsFile(path, asked)
        file.resume(keys(asked))  # which replaces the file
        with pytest.raises(DataError, match="another run is writing to"):
            ResultsFile(path, asked)
    ResultsFile(path, asked).close()


def test_a_file_that_got_nothing_is_not_left_behind(tmp_path: Path) -> None:
    ResultsFile(tmp_path / "out.jsonl", requests(1)).close()
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").write_bytes(b"")
    ResultsFile(tmp_path / "mine", requests(1)).close()
    assert (tmp_path / "mine").exists()
    with pytest.raises(DataError, match="is no regular file"):
        ResultsFile(tmp_path, requests(1))
    with pytest.raises(FileNotFoundError):
        ResultsFile(tmp_path / "none" / "out", requests(1))


def test_a_link_stays_one_and_permissions_stay(tmp_path: Path) -> None:
    asked = requests(1, 1)
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(whole(asked)[:-3])
    real.chmod(0o640)
    link.symlink_to(real)
    with ResultsFile(link, asked) as file:
        file.resume(keys(asked))
    assert link.is_symlink()
    assert real.read_bytes() == whole(asked[:1])
    assert real.stat().st_mode & 0o777 == 0o640


def test_standard_output_has_the_order_of_the_requests(capsys: pytest.CaptureFixture[str]) -> None:
    asked = requests(1, 2, 1)
    printed = ResultsInOrder(asked)
    printed.put(results(asked[1]))
    assert capsys.readouterr().out == ""
    printed.put(results(asked[0]))
    assert capsys.readouterr().out.encode() == whole(asked[:2])
    printed.put(results(asked[2]))
    assert capsys.readouterr().out.encode() == whole(asked[2:])


def test_halves_of_surrogate_pairs_come_out_as_they_came_in() -> None:
    assert json_line({"a": "ä"}) == '{"a": "ä"}\n'.encode()
    raw = json_line({"a": "ä\ud83d"})
    assert raw.isascii()
    assert json.loads(raw) == {"a": "ä\ud83d"}
    request = replace(requests(1)[0], given={"prompt": "\ud83d"})
    assert json.loads(json_line(results(request)[0]))["prompt"] == "\ud83d"
