"""Records what published tokenizers make of texts, with the vocabularies of llama.cpp's source package.

    pip install tokenizers==0.23.3 gguf
    python tools/tokenizers/make_token_references.py VECTORS

VECTORS is the folder that `cargo xtask test` names in MINFER_TEST_VECTORS. Tokens and merges are read from its files;
normalizer and pre-tokenizer are those of the published tokenizer.json. Writes
crates/minfer/tests/vocabularies/published.json: the texts, and for each vocabulary the ids of each text.
"""

import json
import pathlib
import sys

from gguf import GGUFReader
from make_split_references import GPT2, LLAMA3, PUBLISHED, QWEN2, TEXTS, digits_then, random_texts, split
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

TARGET = pathlib.Path(__file__).parents[2] / "crates/minfer/tests/vocabularies/published.json"

NFC = normalizers.NFC()

# The vocabulary: its normalizer, and what cuts words.
BPE = {
    "command-r": (NFC, digits_then(GPT2)),
    "deepseek-coder": (None, PUBLISHED["deepseek-coder"][1]),
    "falcon": (
        None,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                pre_tokenizers.Digits(individual_digits=False),
                split("[0-9][0-9][0-9]"),
            ]
        ),
    ),
    "gpt-2": (None, split(GPT2)),
    "llama-bpe": (None, split(LLAMA3)),
    "mpt": (NFC, split(GPT2)),
    "qwen2": (NFC, split(QWEN2)),
    "qwen35": (NFC, PUBLISHED["qwen35"][1]),
    "refact": (None, digits_then(GPT2)),
    "starcoder": (None, digits_then(GPT2)),
}

MORE = [
    "e\u0301te\u0301 A\u030a \u1112\u1161\u11ab \u212b \u2126 \u0958 \u0915\u093c \u1e9b\u0323 \u0344 \uf900",
    "q\u0307\u0323 \u1ea5\u0323 a\u0315\u0300\u05ae\u0300b \u09c7\u09be \u0b47\u0b57 \ufb1d \u2adc",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\uad6d Caf\u00e9 CAFE\u0301 \u0130stanbul \u00c5ngstr\u00f6m",
    "a\u0085b c\u200bd e\u00adf g\ufeffh \u2028i \ue000j",
    "x" * 100 + " " + "x" * 101 + " " + "\u00e9" * 100 + " " + "e\u0301" * 101,
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e19\u0e49\u0e33 \u05e9\u05b8\u05dc \u0645\u064e \u302e\u4e00 \u20dd",
]


def strings(reader, key):
    field = reader.get_field(f"tokenizer.ggml.{key}")
    return [bytes(field.parts[index]).decode() for index in field.data]


def bpe(path, name):
    reader = GGUFReader(path)
    tokens, merges = strings(reader, "tokens"), strings(reader, "merges")
    types = [int(reader.get_field("tokenizer.ggml.token_type").parts[i][0])
             for i in reader.get_field("tokenizer.ggml.token_type").data]
    vocabulary = {}
    for index, token in enumerate(tokens):
        if types[index] in (1, 6):
            vocabulary.setdefault(token, index)
    every = {token: index for index, token in reversed(list(enumerate(tokens)))}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    for left, right in pairs:
        for token in (left, right, left + right):
            vocabulary.setdefault(token, every[token])
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=name == "llama-bpe"))
    normalizer, words = BPE[name]
    if normalizer is not None:
        made.normalizer = normalizer
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = words if name == "falcon" else pre_tokenizers.Sequence([words, bytes_only])
    # Added tokens that any text spells; those of ours that only marked-up text spells stay away.
    made_ids = [(tokens[i], i) for i in range(len(tokens)) if types[i] == 4]
    return made, dict(made_ids)


def wordpiece(path):
    reader = GGUFReader(path)
    tokens = strings(reader, "tokens")
    vocabulary = {}
    for index, token in enumerate(tokens):
        token = token[1:] if token.startswith("\u2581") else token if token.startswith("[") else "##" + token
        vocabulary.setdefault(token, index)
    made = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    texts = MORE + TEXTS + list(random_texts(40))
    ids = {}
    for name in BPE:
        made, added = bpe(folder / f"ggml-vocab-{name}.gguf", name)
        ids[name] = [None if any(token in text for token in added) else made.encode(text, add_special_tokens=False).ids
                     for text in texts]
        print(name, sum(row is not None for row in ids[name]), list(added)[:5])
    ids["bert-bge"] = [wordpiece(folder / "ggml-vocab-bert-bge.gguf").encode(text, add_special_tokens=False).ids for text in texts]
    lines = [f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}" for name, rows in ids.items()]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text('{"texts": ' + json.dumps(texts) + ',\n"ids": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
