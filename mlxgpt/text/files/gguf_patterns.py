"""Names of `tokenizer.ggml.pre` in a GGUF file -> how text is cut into words before BPE.

GGUF stores no pre-tokenizer, only a name that programs agree upon. What a name stands for is taken
from the tokenizer.json of the models that it was made for, and from llama.cpp where it has a
pattern of its own. A name that is not here is refused: with other words the ids would be wrong, and
nothing would show it.
"""

from dataclasses import dataclass

from mlxgpt.text.bpe.splitting import PATTERNS


@dataclass(frozen=True)
class WordCut:
    """How a byte-level BPE of that name makes words."""

    expressions: tuple[str, ...]
    """Text is cut at the matches of the first, each piece at those of the next. What an expression
    leaves out becomes words too ("Isolated")."""
    ignore_merges: bool = False
    """A word that is a token is not merged."""
    adds_bos: bool = False
    """Text begins with BOS where the file does not say whether it does."""


_GPT2, _LLAMA3, _QWEN2 = PATTERNS["gpt2"], PATTERNS["llama3"], PATTERNS["qwen2"]

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words_by_case(ending: str, digits: str) -> str:
    """Return a pattern that starts a new word where a capital follows a small letter."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{_UPPER}*{_LOWER}+{ending}|{lead}{_UPPER}+{_LOWER}*{ending}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_FINNISH = r" ?[^(\s|.,!?…。，、।۔،)]+"
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"

_CUTS: dict[str, WordCut] = {
    "gpt-2 phi-2 mpt olmo jais trillion exaone4 gigachat a.x-4.0 mellum granite-docling "
    "modern-bert jina-es jina-de jina-v2-es jina-v2-de": WordCut((_GPT2,)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": WordCut(
        (_LLAMA3,), ignore_merges=True, adds_bos=True
    ),
    "smaug-bpe dbrx glm4 chatglm-bpe": WordCut((_LLAMA3,)),
    "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan grok-2 solar-open kormo": WordCut((_QWEN2,)),
    "qwen35": WordCut(
        (
            _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES,
        )
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": WordCut(
        (r"\p{N}", _GPT2)
    ),
    "default": WordCut((_PUNCTUATION, _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": WordCut((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "tekken": WordCut((_words_by_case("", r"\p{N}"),), ignore_merges=True, adds_bos=True),
    "gpt-4o llama4 kanana2 minimax-m2": WordCut((_words_by_case(_ENDINGS + "?", r"\p{N}{1,3}"),)),
    "deepseek-llm": WordCut(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
            r"\s+(?![\s\S])",  # at the end of a line, whose break the first expression took off
            _DEEPSEEK_CJK,
            r"\p{N}",
        )
    ),
    "deepseek-coder": WordCut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    "deepseek-v3 hunyuan-dense joyai-llm": WordCut(
        (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK_V3)
    ),
    "seed-coder": WordCut(
        (
            _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
            r"| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES,
        )
    ),
    "minicpm5": WordCut(
        (
            r"\p{N}{1,3}",
            _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES,
        ),
        ignore_merges=True,
    ),
    "poro-chat bloom gpt3-finnish": WordCut((_FINNISH,)),
    "viking": WordCut((_FINNISH, r"\p{N}")),
}

WORD_CUTS: dict[str, WordCut] = {
    name: cut for names, cut in _CUTS.items() for name in names.split()
}
"""`tokenizer.ggml.pre` -> its cut. Of several names with one cut the first is the usual one."""


def cut_name(expressions: tuple[str, ...], *, ignore_merges: bool) -> str | None:
    """Return the name under which other programs cut words like this, or None if none does."""
    for name, cut in WORD_CUTS.items():
        if cut.expressions == expressions and cut.ignore_merges == ignore_merges:
            return name
    return None
