"""Files and folders that appear whole or not at all."""

import os
from pathlib import Path

import pytest

from mlxgpt.atomic import discard, new_file, new_folder, share_file, sweep, write_bytes


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_bytes(file, b"old")
    with pytest.raises(OSError, match="No space"), new_file(file) as temporary:
        temporary.write_text("ne")
        raise OSError(28, "No space left on device")
    assert file.read_text() == "old"
    assert names(tmp_path) == {"a.txt"}


def test_what_is_renamed_has_reached_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_bytes(tmp_path / "a", b"1")
    assert order == ["fsync", "replace", "fsync"]  # the file, its name, the folder
    assert (tmp_path / "a").read_bytes() == b"1"


def test_the_temporary_name_keeps_the_suffix_and_the_final_file_the_usual_rights(
    tmp_path: Path,
) -> None:
    with new_file(tmp_path / "w.safetensors") as temporary:
        assert temporary.suffix == ".safetensors"
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"")
    (tmp_path / "plain").write_bytes(b"")
    rights = {(tmp_path / n).stat().st_mode for n in ("w.safetensors", "plain")}
    assert len(rights) == 1


def test_a_folder_appears_whole_and_the_first_writer_stays(tmp_path: Path) -> None:
    final = tmp_path / "set"
    with new_folder(final) as first:
        (first / "a").write_text("first")
        assert not final.exists()
        with new_folder(final) as second:
            (second / "a").write_text("second")
    assert (final / "a").read_text() == "second"
    assert names(tmp_path) == {"set"}
    with pytest.raises(RuntimeError), new_folder(tmp_path / "other"):
        raise RuntimeError
    assert names(tmp_path) == {"set"}


def test_a_shared_file_is_the_same_one_or_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("new")
    target.write_text("old")
    share_file(source, target)
    assert os.path.samefile(source, target)
    share_file(source, target)  # a rename between two names of one file would leave a third
    assert names(tmp_path) == {"s", "t"}
    target.unlink()

    def refuse(*_: object) -> None:
        raise OSError(95, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    share_file(source, target)
    assert not os.path.samefile(source, target)
    assert target.read_text() == "new"


def test_a_discarded_folder_is_gone_under_its_name_before_it_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "a").write_text("x")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # killed right there
    discard(folder)
    assert not folder.exists()
    monkeypatch.undo()
    sweep(tmp_path)
    assert names(tmp_path) == set()


def test_sweeping_spares_what_is_young_and_what_is_not_temporary(tmp_path: Path) -> None:
    for name in ("tmp-old", "tmp-young", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("")
    for path in (tmp_path / "tmp-old" / "half", tmp_path / "tmp-old"):
        os.utime(path, (1, 1))
    sweep(tmp_path, older_than=3600)
    assert names(tmp_path) == {"tmp-young", "kept"}
    sweep(tmp_path)
    assert names(tmp_path) == {"kept"}
