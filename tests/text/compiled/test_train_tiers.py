"""Training in both tiers: one result, chosen by the amount of text, in memory that has a bound."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxgpt.text import PATTERNS, train_bpe
from mlxgpt.text.bpe.splitting import Splitter
from mlxgpt.text.compiled import tier
from mlxgpt.text.learning import Learning

WORDS = [
    "hug",
    "pug",
    "don't",
    "they'LL",
    "naïve",
    "中文",
    "12345",
    "...",
    "  ",
    "\n\n",
    "\t",
    "x" * 40,
]


def corpus(n_words: int, seed: int = 0) -> list[str]:
    drawn = random.Random(seed)
    words = [word + "".join(drawn.choices("abcé", k=3)) for word in WORDS for _ in range(30)]
    return [" ".join(drawn.choices(words, k=50)) for _ in range(n_words // 50)]


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), r"\w+|\s"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"min_frequency": 9}, {"max_token_length": 5}, {"forbidden": [b"hug", "中".encode()]}],
)
def test_both_tiers_learn_the_same_from_texts(pattern: str, settings: dict) -> None:
    learning = Learning(n_tokens=900, **settings)
    splitter = Splitter([pattern])
    stretches = corpus(10_000)
    plain = learning.plain(stretches, splitter)
    assert learning.compiled(iter(stretches), splitter) == plain
    assert learning.compiled(iter(stretches), splitter, threads=2) == plain
    assert len(plain.merges) > 100


def choose(monkeypatch: pytest.MonkeyPatch, from_bytes: int) -> list[int]:
    """Let the kernels be worth it from so many bytes on; return what is asked."""
    asked: list[int] = []

    def worthwhile(num_bytes: int, purpose: str) -> bool:
        assert purpose == "training"
        asked.append(num_bytes)
        return num_bytes >= from_bytes

    def warm_up(notice: Callable[[str], None] | None, purpose: str) -> None:
        assert purpose == "training"
        if notice is not None:
            notice("compiling")

    monkeypatch.setattr(tier, "worthwhile", worthwhile)
    monkeypatch.setattr(tier, "warm_up", warm_up)
    monkeypatch.setattr("mlxgpt.text.learning._LOOK_EVERY", 1000)
    return asked


def test_the_tier_is_chosen_by_the_amount_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = corpus(5000)
    size = sum(map(len, documents))
    plain = train_bpe(documents, 500)
    for from_bytes, compiled in ((size // 2, True), (3 * size, False)):
        asked = choose(monkeypatch, from_bytes)
        notices: list[str] = []
        done: list[int] = []
        tokenizer = train_bpe(
            iter(documents),
            500,
            threads=2,
            notice=notices.append,
            progress=lambda n, _, to=done: to.append(n),
        )
        assert tokenizer == plain
        assert notices == (["compiling"] if compiled else [])
        assert (len(done) == 1) == compiled, "merges are reported one by one by the plain tier"
        assert asked == sorted(asked)
        assert asked[0] >= 1000
        assert asked[-1] < min(size, from_bytes) + 1000


def test_a_little_text_asks_for_no_compiler() -> None:
    program = (
        "import sys; from mlxgpt.text import train_bpe; train_bpe(['hug pug'] * 100, 300);"
        "assert not {'numba', 'llvmlite', 'mlxgpt.text.compiled.jit'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


BOUNDED = """
import random, resource, sys
from mlxgpt.text.bpe.piece_cutter import PieceCutter
from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.bpe.word_counts import ordinary_stretches
from mlxgpt.text.added_tokens import AddedTokens
from mlxgpt.text.learning import Learning
from mlxgpt.data import open_corpus

def peak():
    unit = 1 << 10 if sys.platform == "linux" else 1 << 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

def train(path):
    pieces = open_corpus(path).pieces()
    stretches = ordinary_stretches(pieces, PieceCutter(PATTERNS["gpt2"], []), AddedTokens([]))
    learning = Learning(n_tokens=2000)
    return learning.compiled(stretches, Splitter([PATTERNS["gpt2"]]), 2)

first = train(sys.argv[1])
before = peak()
second = train(sys.argv[2])
assert [n * 20 for n in first.counts[:1500]] == second.counts[:1500]
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_one_endless_line(tmp_path: Path) -> None:
    part = " ".join(corpus(400_000, seed=3)).replace("\n", " ") + "."
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text(part, encoding="utf-8")
    large.write_text(part * 20, encoding="utf-8")
    assert large.stat().st_size > 50_000_000
    run = [sys.executable, "-c", BOUNDED, str(small), str(large)]
    grown = subprocess.run(run, check=True, capture_output=True, text=True)
    assert float(grown.stdout) < 20, "MiB more for twenty times the text"


@pytest.mark.slow
def test_no_access_is_out_of_bounds(tmp_path: Path) -> None:
    """The same tests with every index checked, and machine code of their own."""
    here = Path(__file__).parent
    files = [str(here / f"test_train_{what}.py") for what in ("counting", "merges")]
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    checked = {"NUMBA_BOUNDSCHECK": "1", "MLXGPT_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(run, env=checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
