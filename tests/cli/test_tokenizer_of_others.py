"""The looking commands with tokenizers that were not trained here: SentencePiece and WordPiece."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mlxgpt.cli.tokenizer import app
from mlxgpt.errors import TokenizerError
from mlxgpt.text import Tokenizer, train_bpe

NOTE = "model.type 'WordPiece' is not implemented here"


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None:
        raise result.exception
    return result


def rows(printed: str) -> dict[str, str]:
    lines = [line.split("  ", 1) for line in printed.splitlines()]
    return {line[0]: line[1].strip() for line in lines if len(line) == 2}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the form of Llama 2: `▁` for spaces and before the text; bytes at last."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, processors

    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [*"▁abghnpu", "▁h", "ug", "▁hug"]
    vocab = {name: i for i, name in enumerate(names)}
    merges = [("▁", "h"), ("u", "g"), ("▁h", "ug")]
    library = Library(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    folder = tmp_path_factory.mktemp("pieces")
    library.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    vocab = {"[UNK]": 0, "hug": 1, "##s": 2, "pug": 3, ",": 4}
    library = Library(models.WordPiece(vocab, unk_token="[UNK]"))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(["[UNK]"])
    folder = tmp_path_factory.mktemp("wordpiece")
    library.save(str(folder / "tokenizer.json"))
    return folder


def test_info_of_sentencepiece_style(pieces: Path) -> None:
    table = rows(invoke("info", pieces).stdout)
    assert table["family"] == "BPE over characters as in SentencePiece; other characters as bytes"
    assert table["vocabulary"] == "270 ids"
    assert table["merges"] == "3"
    assert table["special tokens"] == "<unk> 0, <s> 1, </s> 2"
    assert table["end of text"] == "</s> 2"
    assert table["normalizer"] == "Prepend, Replace"
    assert table["pre-tokenizer"] == "none"
    assert table["added on demand"] == "<s> text"
    assert table["BPE-dropout"].startswith("yes, exact")
    assert table["longest token"] == "│ hug│ 269, 4 bytes"
    facts = json.loads(invoke("info", pieces, "--json").stdout)
    assert (facts["byte_fallback"], facts["missing_bytes"], facts["dropout"]) == (True, [], True)
    assert facts["longest_token"] == {"id": 269, "text": " hug"}


def test_info_of_a_file_that_goes_through_the_library(wordpiece: Path) -> None:
    result = invoke("info", wordpiece)
    assert result.stderr.count("note: ") == 1
    assert NOTE in result.stderr
    table = rows(result.stdout)
    assert table["family"].startswith("WordPiece, through the `tokenizers` library")
    assert table["BPE-dropout"].startswith("no: the `tokenizers` library does the whole encoding")
    facts = json.loads(invoke("info", wordpiece, "--json").stdout)
    assert (facts["engine"], facts["dropout"], facts["missing_bytes"]) == (
        "tokenizers",
        False,
        None,
    )


def test_info_names_bytes_without_an_id(tmp_path: Path) -> None:
    train_bpe(["hug hug"], 258).save(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab, merges = content["model"]["vocab"], content["model"]["merges"]
    assert vocab.pop("ġ") == 221, "the stand-in of byte 0x7F"
    content["model"]["vocab"] = {name: i - (i > 221) for name, i in vocab.items()}
    content["added_tokens"][0]["id"] -= 1
    assert len(merges) == 1
    file.write_text(json.dumps(content))
    assert rows(invoke("info", tmp_path).stdout)["bytes without id"].startswith("0x7F: left out")
    assert json.loads(invoke("info", tmp_path, "--json").stdout)["missing_bytes"] == [0x7F]


def test_show_and_encode_add_special_tokens_on_demand(pieces: Path) -> None:
    assert invoke("show", pieces, "hug").stdout == "1 token   │ hug│\n"
    assert invoke("show", pieces, "hug", "--add-special-tokens").stdout == "2 tokens  │<s>│ hug│\n"
    assert invoke("encode", pieces, "hug", "--add-special-tokens").stdout == "1 269\n"
    assert invoke("show", pieces, "é").stdout == "3 tokens  │ │\\xc3│\\xa9│\n"


def test_dropout_of_the_library_is_refused_and_the_part_is_named(wordpiece: Path) -> None:
    assert invoke("show", wordpiece, "Hugs").stdout == "2 tokens  │ hug│s│\n"
    for words in (["show", wordpiece, "hugs"], ["encode", wordpiece, "hugs"]):
        for rate in (0.1, 0):
            with pytest.raises(TokenizerError, match=r"--dropout is not possible.*'WordPiece'"):
                invoke(*words, "--dropout", rate)


def test_words_are_counted_alike_for_all(tmp_path: Path, pieces: Path, wordpiece: Path) -> None:
    """A space that a tokenizer adds itself is not added twice, and is no token of the word."""
    text = "hug hug\nbug, Hug"
    (tmp_path / "t.txt").write_text(text)
    result = invoke("compare", pieces, wordpiece, "--corpus", tmp_path / "t.txt", "--json")
    assert result.stderr.count(NOTE) == 1
    own, library = json.loads(result.stdout)["tokenizers"]
    assert (own["num_words"], library["num_words"]) == (4, 4)
    # ▁hug ▁hug, b ug, <0x48> ug: of four words two are split
    assert (own["words_split"], own["tokens_per_word"]) == (0.5, 6 / 4)
    # hug hug [UNK] hug
    assert (library["words_split"], library["tokens_per_word"]) == (0.0, 1.0)
    assert own["texts_kept"] == 1.0
    assert library["texts_kept"] == 0.0, "it has lost a line end, an H and the word bug"
    assert own["num_tokens"] == len(Tokenizer.load(pieces).encode(text))
