"""Records how published pre-tokenizers split text.

    pip install tokenizers==0.23.3
    python tools/tokenizers/make_split_references.py

Writes crates/text/data/tokenizers/splits.json: texts, and for each pre-tokenizer the lengths of the pieces, in
characters, that the `tokenizers` library makes of each text with the published expression. An entry names the published
file that the expression is from. Where `tokenizers` is not what the model ships (tiktoken), the expression is the one of
the model's tiktoken, followed by the same library.
"""

import json
import pathlib
import random

from tokenizers import Regex, pre_tokenizers

TARGET = pathlib.Path(__file__).parents[2] / "crates/text/data/tokenizers/splits.json"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(suffix: str, but: str = "") -> str:
    """The two alternatives for words of the o200k family."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{but}]*[{LOWER}{but}]+{suffix}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{but}]+[{LOWER}{but}]*{suffix}"
    )


O200K = cased(CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK_LETTERS = (
    r"A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}"
    r"\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}"
    r"\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}"
    r"\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}"
    r"\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}"
    r"\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}"
    r"\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}"
    r"\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}"
    r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}"
    r"\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}"
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}"
    r"\x{118a0}-\x{118df}\x{1e900}-\x{1e943}"
)
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(*patterns: str):
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(parts)


def digits_then(pattern: str):
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.Split(Regex(pattern), "isolated")])


# Our name: the published file, and what it says. ByteLevel with its own expression splits as GPT2 does.
PUBLISHED = {
    "gpt-2": ("openai-community/gpt2", split(GPT2)),
    "starcoder": ("bigcode/starcoder2-3b", digits_then(GPT2)),
    "llama-bpe": ("meta-llama/Meta-Llama-3-8B", split(LLAMA3)),
    "qwen2": ("Qwen/Qwen2.5-0.5B", split(QWEN2)),
    "qwen35": (
        "Qwen/Qwen3.5-9B",
        split(
            CONTRACTIONS
            + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
            + SPACES
        ),
    ),
    "tekken": (
        "mistralai/Mistral-Nemo-Base-2407",
        split(cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES),
    ),
    "gpt-4o": ("o200k_base of tiktoken", split(O200K)),
    "tiny_aya": ("CohereLabs/tiny-aya-base", split(r"\d{1,3}(?=(?:\d{3})*\b)", O200K)),
    "youtu": (
        "tencent/Youtu-LLM-2B",
        split(
            "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
            "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            cased(CONTRACTIONS + "?") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES,
        ),
    ),
    "kimi-k2": (
        "tokenization_kimi.py of moonshotai/Kimi-K2-Base",
        split(
            r"[\p{Han}]+|"
            + cased(CONTRACTIONS + "?", r"&&[^\p{Han}]")
            + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            + SPACES
        ),
    ),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", split(r"\p{N}{1,3}", DEEPSEEK_CJK, DEEPSEEK_WORDS)),
    "deepseek-coder": (
        "deepseek-ai/deepseek-coder-6.7b-base",
        pre_tokenizers.Sequence(
            [
                split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                pre_tokenizers.Digits(individual_digits=True),
            ]
        ),
    ),
    "deepseek-llm": (
        "deepseek-ai/deepseek-llm-7b-base",
        split(
            r"[\r\n]",
            rf"\s?[{DEEPSEEK_LETTERS}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            r"\p{N}+",
        ),
    ),
    "superbpe": ("UW/OLMo2-8B-SuperBPE-t180k", split(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "jais-2": (
        "inceptionai/Jais-2-8B-Chat",
        split(
            CONTRACTIONS
            + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            + "".join(rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4))
            + r"|\s{1,2}(?!\S)|\s{1}"
        ),
    ),
    "bailingmoe": (
        "inclusionAI/Ling-lite",
        split(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
    "seed-coder": (
        "ByteDance-Seed/Seed-Coder-8B-Base",
        split(
            CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES
        ),
    ),
    "exaone-moe": (
        "LGAI-EXAONE/K-EXAONE-236B-A23B",
        split(
            CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        ),
    ),
    "minicpm5": (
        "openbmb/MiniCPM5-1B",
        split(
            r"\p{N}{1,3}",
            CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES,
        ),
    ),
    "bloom": ("bigscience/bloom", split(BLOOM)),
}

TEXTS = [
    "Hello, world! It's 2024; don't YOU'LL we'Re I'M he'd",
    "isN't 'stuff' can\u2019t \u017f '\u017f x'\u017fy DON'T",
    "camelCase HTTPServer McDonald's iPhone15Pro XMLHttpRequest snake_case UPPER lower Title",
    "\u0928\u092e\u0938\u094d\u0924\u0947, \u0906\u092a \u0915\u0948\u0938\u0947 \u0939\u0948\u0902?",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a \u0e01\u0e33\u0e25\u0e31\u0e07\u0e17\u0e33",
    "\u0baa\u0bca\u0b99\u0bcd\u0b95\u0bb2\u0bcd \u0b35\u0bbe\u0bb4\u0bcd\u0ba4\u0bcd\u0ba4\u0bc1\u0b95\u0bcd\u0b95\u0bb3\u0bcd 2024",
    "\u09ac\u09be\u0982\u09b2\u09be\u09a6\u09c7\u09b6 \u09e7\u09e8\u09e9\u09ea \u0c24\u0c46\u0c32\u0c41\u0c17\u0c41 \u0cb8\u0ccd\u0cb5\u0cbe\u0c97\u0ca4",
    "\u0645\u0631\u062d\u0628\u0627\u064b \u0628\u0650\u0633\u0652\u0645\u0650 \u0661\u0662\u0663\u0664 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "e\u0301te\u0301 E\u0301COLE caf\u00e9 na\u00efve A\u030angstro\u0308m \u01c5ungla \u02b0h",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u041c\u0418\u0420! \u042d\u0442\u043e\u0422\u0435\u043a\u0441\u0442 \u0393\u03b5\u03b9\u03ac \u03a3\u039f\u03a5 \u0532\u0561\u0580\u0587",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929123\u5929 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 \u1112\u1161\u11ab\u3131\u3134 \u3105\u3106",
    "12345678 1,234,567.89 3\u00bd \u00b2\u00b3 \u2167 1234abc 12345_ \u0967\u0968\u0969\u096a\u096b",
    "a  b\n\n  c\t\td \r\n\r\n e   \n   f \u00a0g\u2003h\u3000i\u0085j",
    "path/to/file.rs // comment\n/* x */ https://example.com/a?b=c&d=e#f \\\\server\\share",
    "\U0001f600\U0001f44d\U0001f3fd\u200d\U0001f4bb \u2764\ufe0f\u200d\U0001f525 \u263a\ufe0f 1\ufe0f\u20e3 \u00a9\u2122",
    "$100 + 50% = <tag attr=\"v\"/> {}[]()|~`^ _under_ --flag @user #tag",
    "\u2018quoted\u2019 \u201cdouble\u201d \u2026 \u2014 \u2013 \u00bf\u00a1 \uff01\uff1f\uff1a \u3001\u3008\u3009 \ufe30",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u13e3\u13b3\u13a9 \u1780\u17d2\u1798\u17c2\u179a \u1019\u103c\u1014\u103a\u1019\u102c \u0f56\u0f7c\u0f51\u0f0b",
    "\U00010428\U00010400\U0001d49c \U00020000\U0002a6d6\u3400 \ufb01\ufb05 \u2102\u210d",
    " leading and trailing  ",
    "x" + " " * 40 + "y" + "\n" * 5 + " " * 3,
]

ALPHABETS = [
    "abcxyzABCXYZ",
    "\u00e9\u00df\u017f\u0130\u01c5\u02b0\u00aa",
    "\u0300\u0301\u094d\u093e\u0e31\u064b\u20dd\ufe0f",
    "\u0915\u0928\u0e01\u0627\u05d0\u3042\u30a2\u4e00\u6f22\uac00",
    "0123456789\u0967\u0661\u00bd\u00b2\u2167",
    "  \t\n\r\u00a0\u3000\u0085",
    "'\u2019.,!?/-_<>|$+\u3001\u2026\u200d\U0001f44d",
]


def random_texts(count: int):
    source = random.Random(7)
    for _ in range(count):
        pieces = []
        for _ in range(source.randrange(2, 14)):
            if source.random() < 0.15:
                pieces.append(source.choice(["'s", "'S", "'re", "'VE", "'ll", "'t", "'\u017f"]))
                continue
            alphabet = source.choice(ALPHABETS)
            pieces.append("".join(source.choice(alphabet) for _ in range(source.randrange(1, 6))))
        yield "".join(pieces)


def main() -> None:
    texts = TEXTS + list(random_texts(150))
    rules = {}
    for name, (source, pre_tokenizer) in PUBLISHED.items():
        rows = []
        for text in texts:
            pieces = pre_tokenizer.pre_tokenize_str(text)
            assert "".join(piece for piece, _ in pieces) == text, (name, text)
            rows.append(" ".join(str(len(piece)) for piece, _ in pieces if piece))
        rules[name] = {"source": source, "lengths": rows}
    lines = [f'{json.dumps(name)}: {{"source": {json.dumps(rule["source"])}, "lengths": {json.dumps(rule["lengths"])}}}'
             for name, rule in rules.items()]
    text = '{"texts": ' + json.dumps(texts) + ',\n"rules": {\n' + ",\n".join(lines) + "\n}}\n"
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
