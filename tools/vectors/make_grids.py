#!/usr/bin/env python3
"""Writes the grids of the codebook types as crates/tensor/src/blocks/grids/ stores them.

  make_grids.py OUT_DIR        pip install gguf==0.19.0 numpy

A grid is a set of short rows of small digits, in ascending order of the number that a row is when its first digit is the
lowest. So it is stored as the set of these numbers: one bit for each number that could be a row, four to a hexadecimal digit, the
lowest bit first. Prints an FNV-1a checksum of the digits of every grid, in order, for the test.
"""
import sys
from pathlib import Path

from gguf import quants

FAMILIES = {"iq1": ["IQ1_S"], "iq2": ["IQ2_XXS", "IQ2_XS", "IQ2_S"], "iq3": ["IQ3_XXS", "IQ3_S"]}
HEADS = {
    "iq1": "The grid of IQ1_S and IQ1_M: rows of eight digits 0, 1, 2, which stand for -1, 0, 1.",
    "iq2": "Grids of the IQ2 types: rows of eight digits 0, 1, 2, which stand for magnitudes 8, 25, 43.",
    "iq3": "Grids of the IQ3 types: rows of four digits 0 to 7, which stand for eight magnitudes.",
}


def main(out_dir):
    for family, names in FAMILIES.items():
        lines = [f"//! {HEADS[family]}", "", "use super::rows;", ""]
        for name in names:
            lines += grid(name)
        (out_dir / f"{family}.rs").write_text("\n".join(lines))


def grid(name):
    kind = getattr(quants, name)
    kind.init_grid()
    base, (count, length) = len(kind.grid_map), kind.grid_shape
    digit = {value: index for index, value in enumerate(kind.grid_map)}
    digits = [[digit[int(value)] for value in row] for row in kind.grid.reshape(kind.grid_shape)]
    numbers = [sum(d * base**i for i, d in enumerate(row)) for row in digits]
    assert numbers == sorted(set(numbers)), name
    bits = sum(1 << number for number in numbers)
    text = "".join(f"{bits >> 4 * at & 15:x}" for at in range((base**length + 3) // 4))
    print(f"{name} {fnv(d for row in digits for d in row):016x}")
    lines = [text[at : at + 100] for at in range(0, len(text), 100)]
    rows = " \\\n".join(f"    {line}" for line in lines)
    head = f"/// {name}: {count} rows."
    return [head, f"pub(in super::super) static {name}: [[u8; {length}]; {count}] = rows({base}, MEMBERS_OF_{name});",
            f'const MEMBERS_OF_{name}: &str = "\\\n{rows}";'.replace(" \\\n", "\\\n"), ""]


def fnv(values):
    sum_ = 0xCBF29CE484222325
    for value in values:
        sum_ = (sum_ ^ value) * 0x100000001B3 & (1 << 64) - 1
    return sum_


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
