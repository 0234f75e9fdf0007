"""`python -m benchmarks.tokenizer [--quick] [--text-dir DIR] [--only PART ...]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import print_conditions
from benchmarks.tokenizer import cold_start, encoding, threads, training
from benchmarks.tokenizer.comparison import Row, show_rows
from benchmarks.tokenizer.settings import FULL, QUICK
from benchmarks.tokenizer.texts import three_texts
from benchmarks.tokenizer.vocabulary import write_vocabulary

PARTS = ("encoding", "threads", "training", "cold-start")


def main(arguments: Sequence[str] = ()) -> int:
    """Run the parts asked for, print a table for each text, and last the ratios and targets."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.text_dir and not given.text_dir.is_dir():
        parser.error(f"--text-dir: {given.text_dir} is not a folder")
    settings = replace(QUICK if given.quick else FULL, by_cpu=given.cpu_time)
    wanted = given.only or PARTS
    texts = three_texts(given.text_dir, settings.text_bytes)
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        file = Path(folder, "tokenizer.json")
        if {"encoding", "threads"} & set(wanted):
            author = write_vocabulary(texts, settings.vocab_size, file)
            print(f"vocabulary: {settings.vocab_size:,} ids, GPT-2 split, learned by {author}\n")
        if "encoding" in wanted:
            rows += encoding.run(texts, file, settings)
        if "threads" in wanted:
            rows += threads.run(texts, file, settings)
        if "training" in wanted:
            rows += training.run(texts, settings)
        if "cold-start" in wanted:
            cold_start.run(settings)
    if rows:
        show_rows(rows, settings)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tokenizer", description=main.__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--text-dir",
        type=Path,
        default=_folder_of_text(),
        help="folder of .txt files, English and others; without it $MLXGPT_BENCH_TEXT if that is "
        "a folder, or else text that is found or made on this machine",
    )
    parser.add_argument("--quick", action="store_true", help="see that it runs; keep no figures")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="on a busy machine: measure CPU time, but for threads and cold-start",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="of all parts, these")
    return parser


def _folder_of_text() -> Path | None:
    own = os.environ.get("MLXGPT_BENCH_TEXT")
    return Path(own) if own and Path(own).is_dir() else None


if __name__ == "__main__":
    print_conditions()
    sys.exit(main(sys.argv[1:]))
