"""Tiny random models of families, and what llama.cpp makes of them.

Usage: make_reference.py [--models DIR] [FAMILY...]        python packages: gguf==0.19.0, numpy, llama-cpp-python==0.3.36
       make_reference.py --record FILE NAME OUT.json

Writes crates/testkit/data/synthetic/FAMILY.json: the digest of the model's GGUF file, a sequence of tokens, and the log-probabilities
of all tokens after some of its positions. The generator in crates/testkit/src/synthetic writes the same file byte for byte.
With --record an existing file is measured in the same way.
"""

import argparse
import hashlib
import json
import pathlib

import numpy

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/testkit/data/synthetic"
CONTEXT = 512
POSITIONS = [0, 1, 2, 15, 63, 64, 65, 100, 127, 149, 192, 255, 256, 299]
MERGES = ["t h", "th e", "i n", "e r", "a n", "Ġ the", "o n", "r e", "Ġ a", "in g"]

# What a family's file has. Norms and matrices carry biases where the letters say so: n norms, q projections to q, k and v,
# o the one back, f the feed-forward part, h the head.
PLAIN = {
    "arch": None, "layers": 4, "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 96, "rotated": 16,
    "norm": "rms", "biases": "", "tied": False, "positions": False, "joint": False, "gated": True,
    "before": ["attn_norm", "ffn_norm"], "after": [], "head_norms": None, "keys": {},
}
FAMILIES = {
    "gpt2": {"norm": "layer", "biases": "nqof", "kv_heads": 4, "rotated": 0, "tied": True, "positions": True, "joint": True,
             "gated": False},
    "phi2": {"norm": "layer", "biases": "nqofh", "kv_heads": 4, "rotated": 8, "joint": True, "gated": False,
             "before": ["attn_norm"]},
    "starcoder2": {"norm": "layer", "biases": "nqof", "tied": True, "gated": False},
    "stablelm": {"norm": "layer", "biases": "nq", "rotated": 4},
    "stablelm-parallel": {"arch": "stablelm", "norm": "layer", "biases": "n", "rotated": 4, "before": ["attn_norm"],
                          "head_norms": "each"},
    "falcon": {"norm": "layer", "biases": "n", "kv_heads": 1, "tied": True, "joint": True, "gated": False,
               "before": ["attn_norm"]},
    "falcon-40b": {"arch": "falcon", "norm": "layer", "biases": "n", "joint": True, "gated": False,
                   "before": ["attn_norm", "attn_norm_2"]},
    "command-r": {"norm": "layer", "tied": True, "before": ["attn_norm"], "keys": {"logit_scale": 0.25}},
    "cohere2": {"norm": "layer", "tied": True, "before": ["attn_norm"],
                "keys": {"attention.sliding_window": 64, "logit_scale": 0.25}},
    "internlm2": {},
    "minicpm": {"keys": {"embedding_scale": 12.0, "residual_scale": 0.7, "logit_scale": 4.0}},
    "exaone4": {"before": [], "after": ["post_attention_norm", "post_ffw_norm"], "head_norms": "shared"},
    "exaone4-32b": {"arch": "exaone4", "layers": 64, "width": 32, "heads": 4, "head_dim": 8, "inner": 32, "rotated": 8,
                    "before": [], "after": ["post_attention_norm", "post_ffw_norm"], "head_norms": "shared",
                    "keys": {"attention.sliding_window": 64}},
}


def visible_bytes():
    """One visible character for each byte: its own, or the next from U+0100 on."""
    spare = iter(range(256, 512))
    own = {*range(33, 127), *range(161, 173), *range(174, 256)}
    return [chr(byte if byte in own else next(spare)) for byte in range(256)]


class Writer:
    """Draws tensors one after another into a GGUF file."""

    def __init__(self, path, family):
        from gguf import GGUFWriter

        self.has = PLAIN | FAMILIES[family]
        self.arch = self.has["arch"] or family
        self.file = GGUFWriter(path, self.arch)
        self.random = numpy.random.default_rng(sum(map(ord, family)))
        self.tokens = visible_bytes() + [merge.replace(" ", "") for merge in MERGES] + ["<|bos|>", "<|eos|>", "<|pad|>"]
        self.file.add_name(f"synthetic {family}")

    def number(self, key, value):
        add = self.file.add_float32 if isinstance(value, float) else self.file.add_uint32
        add(f"{self.arch}.{key}", value)

    def metadata(self):
        has, count = self.has, len(self.tokens)
        for key, value in [
            ("context_length", CONTEXT), ("embedding_length", has["width"]), ("block_count", has["layers"]),
            ("feed_forward_length", has["inner"]), ("attention.head_count", has["heads"]),
            ("attention.head_count_kv", has["kv_heads"]), ("vocab_size", count), ("rope.freq_base", 10000.0),
            ("attention.layer_norm_epsilon" if has["norm"] == "layer" else "attention.layer_norm_rms_epsilon", 1e-5),
        ]:
            self.number(key, value)
        self.file.add_file_type(0)
        self.file.add_tokenizer_model("gpt2")
        self.file.add_tokenizer_pre("qwen2")
        self.file.add_token_list(self.tokens)
        self.file.add_token_types([1] * (count - 3) + [3] * 3)
        self.file.add_token_merges(MERGES)
        self.file.add_bos_token_id(count - 3)
        self.file.add_eos_token_id(count - 2)
        self.file.add_pad_token_id(count - 1)
        self.file.add_add_bos_token(False)
        if has["rotated"]:
            self.number("rope.dimension_count", has["rotated"])
        for key, value in has["keys"].items():
            self.number(key, value)

    def drawn(self, name, shape, scale, around=0.0):
        normal = self.random.standard_normal(shape).astype(numpy.float32)
        self.file.add_tensor(name, normal * numpy.float32(scale) + numpy.float32(around))

    def norm(self, name, shape, bias):
        self.drawn(f"{name}.weight", shape, 0.4, 1.0)
        if bias:
            self.drawn(f"{name}.bias", shape, 0.1)

    def linear(self, name, rows, columns, bias):
        self.drawn(f"{name}.weight", (rows, columns), 1.0 / numpy.sqrt(columns))
        if bias:
            self.drawn(f"{name}.bias", (rows,), 0.1)

    def tensors(self):
        has, count, biases = self.has, len(self.tokens), self.has["biases"]
        # As the output too, it gives logits of usual size.
        scale = 0.125 if has["tied"] else 0.5
        self.drawn("token_embd.weight", (count, has["width"]), scale)
        if has["positions"]:
            self.drawn("position_embd.weight", (CONTEXT, has["width"]), scale)
        self.norm("output_norm", (has["width"],), "n" in biases)
        if not has["tied"]:
            self.linear("output", count, has["width"], "h" in biases)
        for index in range(has["layers"]):
            self.layer(f"blk.{index}.")

    def layer(self, prefix):
        has, biases = self.has, self.has["biases"]
        width, inner = has["width"], has["inner"]
        q, kv = has["heads"] * has["head_dim"], has["kv_heads"] * has["head_dim"]
        for local in has["before"] + has["after"]:
            self.norm(prefix + local, (width,), "n" in biases)
        projections = [("attn_qkv", q + 2 * kv)] if has["joint"] else [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]
        for local, rows in projections:
            self.linear(prefix + local, rows, width, "q" in biases)
        self.linear(prefix + "attn_output", width, q, "o" in biases)
        if has["head_norms"]:
            for local, heads in [("attn_q_norm", has["heads"]), ("attn_k_norm", has["kv_heads"])]:
                own = (heads,) if has["head_norms"] == "each" else ()
                self.norm(prefix + local, (*own, has["head_dim"]), False)
        if has["gated"]:
            self.linear(prefix + "ffn_gate", inner, width, "f" in biases)
        self.linear(prefix + "ffn_up", inner, width, "f" in biases)
        self.linear(prefix + "ffn_down", width, inner, "f" in biases)

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def record(path, name, out, length=300):
    """Runs a file in llama.cpp in f32, plain attention, and writes what it gave."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, flash_attn=False, type_k=0, type_v=0,
                            n_threads=2, n_threads_batch=2, verbose=False)
    count = model.n_vocab() - 3
    tokens = [(11 * index * index + 37 * index + 5) % count for index in range(length)]
    model.eval(tokens)
    rows = model.scores[:length].astype(numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))
    positions = [position for position in POSITIONS if position < length]
    found = {
        "family": name,
        "sha256": hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest(),
        "reference": f"llama-cpp-python {llama_cpp.__version__}, CPU, f32 KV",
        "tokens": tokens,
        "positions": positions,
        "logprobs": [[round(float(value), 5) for value in rows[position]] for position in positions],
    }
    pathlib.Path(out).write_text(json.dumps(found))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--models", default="/tmp", type=pathlib.Path)
    arguments.add_argument("--record", nargs=3, metavar=("FILE", "NAME", "OUT"))
    arguments.add_argument("--length", default=300, type=int)
    arguments.add_argument("families", nargs="*")
    arguments = arguments.parse_args()
    if arguments.record:
        record(*arguments.record, arguments.length)
        return
    for family in arguments.families or FAMILIES:
        path = arguments.models / f"{family}.gguf"
        writer = Writer(path, family)
        writer.metadata()
        writer.tensors()
        writer.close()
        record(path, family, DATA / f"{family}.json")


if __name__ == "__main__":
    main()
