#!/usr/bin/env python3
"""Records what the gguf package decodes and encodes, for the tests of crates/tensor.

  make_block_vectors.py OUT_DIR        pip install gguf==0.19.0 numpy

Writes one text file per element type. Lines, in hexadecimal:
  decode BYTES VALUES     stored bytes of one or more blocks; their f32 bits, 8 digits each, most significant first
  encode VALUES BYTES     f32 bits; the stored bytes that the reference quantiser makes of them
Decoded NaNs are recorded as 7fc00000.
"""
import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, quants

DECODED = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q6_K]
DECODED += [T.Q2_K, T.Q3_K, T.Q5_K, T.TQ1_0, T.TQ2_0]
# Types with random numbers of their own, so that the blocks of no other type depend on them.
CODEBOOKS = [T.IQ4_NL, T.IQ4_XS, T.MXFP4, T.NVFP4, T.IQ3_XXS, T.IQ3_S]
CODEBOOKS += [T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ1_S, T.IQ1_M]
ENCODED = [T.F16, T.BF16, T.Q8_0, T.Q4_0, T.MXFP4]
# Byte offsets of the f16 scales in a block.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q6_K: [208]}
SCALES |= {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q5_K: [0, 2], T.TQ1_0: [52], T.TQ2_0: [64]}
SCALES |= {kind: [0] for kind in CODEBOOKS} | {T.MXFP4: [], T.NVFP4: [], T.IQ1_M: []}
# 1, -1, a third, smallest and largest subnormal, smallest normal, zero, minus zero, largest, -0.00213
EXTREME_SCALES = [0x3C00, 0xBC00, 0x3555, 0x0001, 0x03FF, 0x8001, 0x0400, 0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x985D]


def main(out_dir):
    rng = np.random.default_rng(20250101)
    out_dir.mkdir(parents=True, exist_ok=True)
    for kind in DECODED + CODEBOOKS:
        if kind in CODEBOOKS:
            rng = np.random.default_rng([20250101, kind.value])
        lines = [decode_line(kind, block) for block in blocks(kind, rng)]
        if kind in ENCODED:
            lines += [encode_line(kind, values) for values in rows(kind, rng)]
        (out_dir / f"{kind.name.lower()}.txt").write_text("\n".join(lines) + "\n")


def blocks(kind, rng):
    """Random blocks with sane scales, then extreme ones."""
    size = GGML_QUANT_SIZES[kind][1]
    if kind not in SCALES:
        return [rng.integers(0, 256, 32 * size, dtype=np.uint8)] + [plain_extremes(size)]
    large = GGML_QUANT_SIZES[kind][0] == 256                                          # recorded sparsely, to keep the files small
    found = []
    for fill in ["random", 0xFF] if large else ["random", "random", "random", 0x00, 0xFF, 0x80, 0x7F]:
        block = rng.integers(0, 256, size, dtype=np.uint8) if fill == "random" else np.full(size, fill, np.uint8)
        found.append(with_scales(kind, block, rng.normal(0, 0.01, 2).astype(np.float16).view(np.uint16)))
    for i, bits in enumerate(EXTREME_SCALES[1::2] if large else EXTREME_SCALES):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        found.append(with_scales(kind, block, [bits, EXTREME_SCALES[(i * 5 + 1) % len(EXTREME_SCALES)]]))
    for bits in () if large else (0x7C00, 0xFC00, 0x7E00):
        found.append(with_scales(kind, rng.integers(0, 256, size, dtype=np.uint8), [bits, 0x3C00]))
    return found


def with_scales(kind, block, bits):
    block = block.copy()
    for at, value in zip(SCALES[kind], bits):
        block[at : at + 2] = np.frombuffer(int(value).to_bytes(2, "little"), np.uint8)
    if kind == T.IQ1_M:                                         # four nibbles, each on top of a word of sub-scales
        for i in range(4):
            block[49 + 2 * i] = block[49 + 2 * i] & 0x0F | (int(bits[0]) >> 4 * i & 15) << 4
    return block


def plain_extremes(size):
    if size == 4:
        bits = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000]
        return np.array(bits, np.uint32).view(np.uint8)
    bits = [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x007F, 0x0080, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0xFF80, 0x7FC0]
    return np.array(bits, np.uint16).view(np.uint8)


def rows(kind, rng):
    """Rows of 32 values to encode."""
    if kind in (T.F16, T.BF16):
        bits = rng.integers(0, 2**32, 64, dtype=np.uint32)
        bits[::4] = (bits[::4] & 0xFFFF0000) | 0x8000           # ties of BF16
        near = (rng.normal(0, 1, 32).astype(np.float32).view(np.uint32) & 0xFFFFE000) | 0x1000   # ties of F16
        tiny = (rng.normal(0, 1e-6, 32)).astype(np.float32).view(np.uint32)
        values = np.concatenate([bits, near, tiny]).view(np.float32)
        return [values[~np.isnan(values)]]
    random = [rng.normal(0, scale, 32).astype(np.float32) for scale in (1.0, 0.02, 1e-3, 300.0, 1e-7)]
    ties = (np.arange(32, dtype=np.float32) - 16) * np.float32(0.5)
    halves = np.arange(32, dtype=np.float32) * 7 - np.float32(100.5)          # ties of Q8_0 at scale 1
    halves[31] = 127
    equal_peaks = np.tile(np.array([1.5, -1.5, 0.25, -0.75], np.float32), 8)
    negative = -np.abs(rng.normal(0, 1, 32)).astype(np.float32)
    one = np.zeros(32, np.float32)
    one[17] = -3.25
    return random + [ties, halves, equal_peaks, negative, one, np.zeros(32, np.float32)]


def decode_line(kind, block):
    with np.errstate(all="ignore"):
        values = np.asarray(quants.dequantize(block, kind), np.float32)
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    return f"decode {block.tobytes().hex()} {shown(bits)}"


def encode_line(kind, values):
    with np.errstate(all="ignore"):
        stored = np.ascontiguousarray(quants.quantize(values, kind)).view(np.uint8)
    return f"encode {shown(values.view(np.uint32))} {stored.tobytes().hex()}"


def shown(bits):
    return "".join(f"{int(value):08x}" for value in np.ravel(bits))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
