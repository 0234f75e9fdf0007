"""`mlxgpt data histogram`: a table and a picture of what each pack mode draws."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_runs import hold, interrupted, make_base, refusal, run, write_rows

from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.drawings import drawing_for
from mlxgpt.data.sft.histogram import histogram

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("histogram") / "base", template=False)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lengths = [3 + i % 5 for i in range(32)] + [40 + 7 * i for i in range(8)]
    return write_rows(tmp_path / "rows.jsonl", *({"text": "z" * n} for n in lengths))


def cells(printed: str) -> list[list[str]]:
    """Return the cells of the table below its two lines of titles."""
    return [re.split(r"\s{2,}", line.strip()) for line in printed.split("\n\n")[0].splitlines()[2:]]


def test_json_holds_the_counts_of_each_mode(base: Path, rows: Path) -> None:
    arguments = ("histogram", rows, "--model", base, "--pack-mode", "sample", "--json")
    printed = run(*arguments, "--draws", 400, "--seed", 3, "--batch", 2)
    assert "NaN" not in printed, "which is no JSON"
    facts = json.loads(printed)
    assert list(facts["modes"]) == ["sample", "none", "bucket"], "the one asked for in front"
    assert (facts["rows"], facts["draws"], facts["seed"]) == (40, 400, 3)
    lengths = [n + 1 for n in [3 + i % 5 for i in range(32)] + [40 + 7 * i for i in range(8)]]
    for mode, found in facts["modes"].items():
        config = SFTDataConfig(train="x", pack_mode=mode)
        expected = histogram(lengths, drawing_for(config, lengths, 2, 256, 3), 400)
        assert facts["edges"] == expected.edges.tolist()
        assert found["draws"] == expected.draws.tolist()
        assert found["frequency"] == pytest.approx(expected.frequency)
        assert found["token_share"] == pytest.approx(expected.token_share)
        assert found["cov"] == pytest.approx(expected.variation)
        brought = np.array([np.nan if x is None else x for x in found["tokens_per_example"]])
        assert np.allclose(brought, expected.per_example, equal_nan=True)
    modes = json.loads(run(*arguments))["modes"]
    covs = {mode: found["cov"] for mode, found in modes.items()}
    assert covs["sample"] < covs["none"] < covs["bucket"]


def test_the_table_is_the_same_in_words(base: Path, rows: Path) -> None:
    arguments = ("histogram", rows, "--model", base, "--pack-mode", "bucket")
    facts = json.loads(run(*arguments, "--json"))
    printed = run(*arguments)
    assert printed.splitlines()[0].split() == ["bucket", "none", "sample"]
    assert printed.splitlines()[1].split() == ["tokens", "rows", *["draws", "tokens"] * 3]
    *lines, last = cells(printed)
    filled = [k for k, count in enumerate(facts["examples"]) if count]
    assert len(lines) == len(filled), "lengths without rows have no line"
    for k, line in zip(filled, lines, strict=True):
        low, high = facts["edges"][k], facts["edges"][k + 1] - 1
        shares = [
            f"{found[what][k]:.1%}"
            for found in facts["modes"].values()
            for what in ("frequency", "token_share")
        ]
        assert line == [f"{low}-{high}", str(facts["examples"][k]), *shares]
    assert last == ["CoV", *(f"{found['cov']:.3f}" for found in facts["modes"].values())]
    assert "100,000 draws from 40 rows, seed 0, 4 rows a step" in printed
    assert max(map(len, printed.split("\n\n")[0].splitlines())) <= 80
    assert "has no chat template" in printed


def test_draws_are_whole_passes_unless_said(base: Path, rows: Path, tmp_path: Path) -> None:
    few = write_rows(tmp_path / "few.jsonl", *({"text": "z" * n} for n in range(5, 11)))
    facts = json.loads(run("histogram", few, "--model", base, "--json"))
    assert (facts["rows"], facts["draws"]) == (6, 100_002)
    assert facts["modes"]["none"]["draws"] == [100_002 // 6] * 6
    facts = json.loads(run("histogram", rows, "--model", base, "--json", "--draws", 7))
    assert sum(facts["modes"]["none"]["draws"]) == facts["draws"] == 7


def test_a_picture_is_drawn_and_replaced(base: Path, rows: Path, tmp_path: Path) -> None:
    arguments = ("histogram", rows, "--model", base, "--draws", 100)
    printed = run(*arguments)
    assert printed.endswith("plot: histogram.png\n")
    assert (tmp_path / "histogram.png").read_bytes().startswith(PNG)
    other = tmp_path / "a $x$.PNG"
    other.write_bytes(b"old")
    run(*arguments, "--out", other, "--pack-mode", "sequence")
    assert other.read_bytes().startswith(PNG)


def test_the_picture_is_the_same_for_the_same_rows(base: Path, rows: Path) -> None:
    arguments = ("histogram", rows, "--model", base, "--draws", 100)
    run(*arguments, "--out", "a.png")
    run(*arguments, "--out", "b.png")
    run(*arguments, "--out", "c.png", "--pack-mode", "sample")
    a, b, c = (Path(f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


def test_sequence_takes_the_place_of_none(base: Path, rows: Path) -> None:
    arguments = ("histogram", rows, "--model", base, "--json")
    modes = json.loads(run(*arguments, "--pack-mode", "sequence"))["modes"]
    assert list(modes) == ["sequence", "sample", "bucket"]
    assert modes["sequence"]["draws"] == json.loads(run(*arguments))["modes"]["none"]["draws"]


def test_the_settings_of_rows_and_bins_count(
    base: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxgpt.cli.data.histogram_plot.plot_histograms", lambda *_: None)
    arguments = ("histogram", rows, "--model", base, "--json", "--draws", 50)

    def facts(*more: object) -> dict[str, Any]:
        return json.loads(run(*arguments, *more))

    plain = facts()
    assert facts()["modes"] == plain["modes"]
    assert facts("--length-bucket", 2)["modes"]["bucket"] != plain["modes"]["bucket"]
    assert facts("--batch", 1)["modes"] != plain["modes"]
    assert facts("--seed", 1)["modes"] != plain["modes"]
    assert facts("--max-length", 50)["edges"] != plain["edges"]
    assert facts("--max-length", 50, "--overflow", "drop")["rows"] == 34
    assert facts("--template", "plain")["template"] == "plain"


def test_rows_of_one_length_are_no_trouble(base: Path, rows: Path) -> None:
    same = write_rows(rows.parent / "same.jsonl", *[{"text": "zzz"}] * 3)
    printed = run("histogram", same, "--model", base, "--draws", 10)
    assert cells(printed)[0] == ["4", "3", *["100.0%"] * 6]
    assert cells(printed)[1] == ["CoV", *["0.000"] * 3]


def test_mistakes_are_one_line(base: Path, rows: Path, tmp_path: Path) -> None:
    def refuse(*arguments: object, file: object = rows, model: object = base) -> str:
        return refusal("histogram", file, "--model", model, *arguments)

    hold("none.jsonl", within=refuse(file=tmp_path / "none.jsonl"))
    (tmp_path / "empty").mkdir()
    hold("train.jsonl", within=refuse(file=tmp_path / "empty"))
    hold("nowhere", within=refuse(model=tmp_path / "nowhere"))
    hold("--draws", within=refuse("--draws", 0))
    hold("--batch", within=refuse("--batch", 0))
    hold("pack_mode", "sample", within=refuse("--pack-mode", "samples"))
    hold("length_bucket", "at least 1", within=refuse("--length-bucket", 0))
    hold("--out", ".png", within=refuse("--out", "a.jpg"))
    hold("--out", "no folder", within=refuse("--out", tmp_path / "no" / "a.png"))
    (tmp_path / "b.png").mkdir()
    hold("--out: cannot write", "b.png", within=refuse("--out", tmp_path / "b.png", "--draws", 9))
    odd = write_rows(tmp_path / "odd.jsonl", {"text": "ask"}, {"unknown": 1})
    hold("odd.jsonl:2", "unknown", within=refuse(file=odd))
    assert sorted(path.name for path in tmp_path.iterdir() if "png" in path.name) == ["b.png"]


def test_ctrl_c_is_one_line(base: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, "histogram", rows, "--model", base)
