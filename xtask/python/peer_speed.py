"""Tokens per second of llama.cpp on one GGUF file, written as one JSON object.

    python peer_speed.py MODEL.gguf --test tg32@4096 --reps 3 --threads 2

A test is ppN (N prompt tokens together), tgN (N tokens one by one), and @D where D tokens are cached
before the clock starts. The answer is the median over the repetitions, after one that is not counted.
Needs the packages llama-cpp-python and numpy.
"""

import argparse
import ctypes
import json
import re
import statistics
import time

import llama_cpp as llama

BATCH = 512
"""Most tokens of one forward pass."""


@llama.llama_log_callback
def silent(_level, _text, _data):
    """Drops llama.cpp's own messages."""


class Session:
    """A loaded model with one context."""

    def __init__(self, path, cells, threads):
        llama.llama_log_set(silent, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = llama.llama_context_default_params()
        params.n_ctx = cells
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp cannot hold {cells} tokens")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def clear(self):
        """Forgets all cached tokens."""
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def feed(self, tokens):
        """Runs tokens through the model after those that are cached, and waits for the result."""
        for start in range(0, len(tokens), BATCH):
            piece = tokens[start : start + BATCH]
            array = (llama.llama_token * len(piece))(*piece)
            status = llama.llama_decode(self.context, llama.llama_batch_get_one(array, len(piece)))
            if status != 0:
                raise SystemExit(f"llama_decode returned {status}")
        llama.llama_synchronize(self.context)

    def tokens(self, count, seed):
        """Token ids that are spread over the vocabulary and the same in every run."""
        return [(seed + 104_729 * i) % self.vocabulary for i in range(count)]


def timed(session, kind, count, depth):
    """Tokens per second of one repetition."""
    session.clear()
    session.feed(session.tokens(depth, seed=11))
    tokens = session.tokens(count, seed=23)
    start = time.perf_counter()
    if kind == "pp":
        session.feed(tokens)
    else:
        for token in tokens:
            session.feed([token])
    return count / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--test", required=True)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    match = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?", args.test)
    if not match:
        parser.error(f"{args.test} is not a test")
    kind, count, depth = match[1], int(match[2]), int(match[3] or 0)
    session = Session(args.model, count + depth + 8, args.threads)
    speeds = [timed(session, kind, count, depth) for _ in range(args.reps + 1)]
    print(json.dumps({"test": args.test, "tok_s": statistics.median(speeds[1:])}))


main()
