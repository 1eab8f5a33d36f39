#!/usr/bin/env python3
"""Prints how far rows are from themselves after llama.cpp's quantisers, for crates/tensor/tests/encoders.rs.

  make_encoder_errors.py       pip install gguf==0.19.0 numpy llama-cpp-python==0.3.36

Lines: type, root mean square error of normal rows, of heavy-tailed rows. Errors are computed in f64.
"""
import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, quants

ROWS, COLUMNS = 64, 1024
KINDS = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.Q8_K]
LIBRARY = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
FLOATS = ctypes.POINTER(ctypes.c_float)
LIBRARY.ggml_quantize_chunk.restype = ctypes.c_size_t
LIBRARY.ggml_quantize_chunk.argtypes = [ctypes.c_int, FLOATS, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [FLOATS]
LIBRARY.quantize_row_q8_K_ref.argtypes = [FLOATS, ctypes.c_void_p, ctypes.c_int64]


def main():
    normal = rows(1, lambda x: x)
    heavy = rows(2, lambda x: x * x * x)
    for kind in KINDS:
        errors = [float(np.sqrt(np.mean((decoded(kind, values).astype(np.float64) - values) ** 2))) for values in (normal, heavy)]
        print(f"{kind.name} {errors[0]:.6e} {errors[1]:.6e}")


def rows(seed, shape):
    """Sums of twelve uniform numbers; the test makes the same ones."""
    state, values = seed, []
    for _ in range(ROWS * COLUMNS):
        total = 0
        for _ in range(12):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += state >> 40
        values.append(shape(total / 2**24 - 6.0) * 0.02)
    return np.array(values, np.float64).astype(np.float32).reshape(ROWS, COLUMNS)


def decoded(kind, values):
    block_len, block_bytes = GGML_QUANT_SIZES[kind]
    stored = np.zeros((ROWS, COLUMNS // block_len * block_bytes), np.uint8)
    pointer = values.ctypes.data_as(FLOATS)
    if kind == T.Q8_K:
        LIBRARY.quantize_row_q8_K_ref(pointer, stored.ctypes.data, values.size)
        blocks = stored.reshape(-1, block_bytes)
        scales = blocks[:, :4].copy().view(np.float32)
        return (scales * blocks[:, 4:260].view(np.int8)).reshape(values.shape)
    LIBRARY.ggml_quantize_chunk(kind.value, pointer, stored.ctypes.data, 0, ROWS, COLUMNS, None)
    return quants.dequantize(stored, kind)


if __name__ == "__main__":
    main()
