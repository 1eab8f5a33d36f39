//! Stored rows against the formats' definitions, byte for byte.

use minfer_graph::RopePairs;

use super::super::rope::{fill_table, rope, table_floats, tests};
use super::*;
use crate::arena::CpuArena;
use crate::math::testing::Numbers;
use crate::ops::attention::tests::{Case, encode, least_dim, places, write};
use crate::threads::Worker;
use minfer_graph::{KvLayout, KvSpec};

const TOKENS: usize = 53;

/// Cells of two sequences: a run across blocks, and single rows in any order.
fn cells(case: &Case) -> Vec<u32> {
    let block = case.block_tokens;
    let mut cells: Vec<u32> =
        (0..40u32).map(|p| [7, 2, 5][(p / block) as usize % 3] * block + p % block).collect();
    cells.extend([0, 3, 2, 1, 9, 8, 10, 11, 13, 14, 15, 12, 6].map(|offset| 4 * block + offset));
    cells
}

fn arena(case: &Case) -> CpuArena {
    let arena = CpuArena::new(&KvSpec { groups: vec![case.group()], max_blocks: vec![8] }).unwrap();
    let pairs = arena.cells(0).pairs;
    pairs.get_mut(0..pairs.len()).fill(0xabcd_1234);
    arena
}

/// Each byte is where the layout says, and no other has changed.
fn assert_stored(case: &Case, arena: &CpuArena, k: &[f32], v: &[f32]) {
    let untouched = self::arena(case);
    let kv_heads = case.kv_heads as usize;
    for (side, dims, rows) in [(KvSide::K, case.k_dim as usize, k), (KvSide::V, case.v_dim as usize, v)] {
        for (row, cell) in cells(case).into_iter().enumerate() {
            let cell = (cell / case.block_tokens, (cell % case.block_tokens) as usize);
            for head in 0..kv_heads {
                let values = &rows[(row * kv_heads + head) * dims..][..dims];
                let place = places(case, side, cell, head);
                for (index, expected) in encode(case.format(side), values).into_iter().enumerate() {
                    let found = arena.cells(0).bytes.get(place(index)..place(index) + 1)[0];
                    assert_eq!(found, expected, "{case:?} {side:?} row {row} byte {index}");
                }
                write(untouched.cells(0), case, side, cell, head, values);
            }
        }
    }
    let all = |arena: &CpuArena| {
        let pairs = arena.cells(0).pairs;
        pairs.get(0..pairs.len()).to_vec()
    };
    assert!(all(arena) == all(&untouched), "{case:?}: something else was written");
}

#[test]
fn rows_lie_where_the_layout_says() {
    for format in KvFormat::ALL {
        for (dim, block_tokens) in [(16, 16), (24, 16), (64, 64), (80, 32), (96, 128), (192, 16), (256, 64)] {
            let mut case = Case::new(2, 2, dim, format);
            case.block_tokens = block_tokens;
            case.v_dim = dim / 2;
            if !case.can_be_stored() {
                continue;
            }
            let (k_width, v_width) = (2 * dim as usize, dim as usize);
            let (mut k, mut v) =
                (Numbers(1).vec(TOKENS * k_width, 3.0), Numbers(2).vec(TOKENS * v_width, 3.0));
            for (isa, layout) in Isa::available().flat_map(|isa| KvLayout::ALL.map(|layout| (isa, layout))) {
                case.layout = layout;
                for count in 1..=3 {
                    let arena = arena(&case);
                    let (group, rows) = (case.group(), cells(&case));
                    let target =
                        StoreTarget { group: &group, layer_index: 1, cells: arena.cells(0), rows: &rows };
                    let view_k = Rows::from_slice(&mut k, k_width, k_width);
                    let view_v = Rows::from_slice(&mut v, v_width, v_width);
                    for index in 0..count {
                        kv_store(isa, Worker { index, count }.share(TOKENS), &target, &view_k, &view_v);
                    }
                    assert_stored(&case, &arena, &k, &v);
                }
            }
        }
    }
}

#[test]
fn the_fused_form_gives_the_bits_of_rotation_and_store() {
    for format in KvFormat::ALL {
        for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
            let dim = least_dim(format);
            let case = Case::new(6, 2, dim, format);
            let rope_spec = tests::spec(pairs, 20, 1.0);
            let spec =
                RopeStoreSpec { layer: 5, heads: 6, kv_heads: 2, k_dim: dim, v_dim: dim, rope: rope_spec };
            let (q_width, qk_width, width) = (6 * dim as usize, 8 * dim as usize, 10 * dim as usize);
            let mut joint = Numbers(9).vec(TOKENS * width, 2.0);
            let positions: Vec<u32> = (0..TOKENS as u32).map(|row| 1000 + row).collect();
            let mut table = vec![0.0; table_floats(&spec.rope, TOKENS)];
            let table = SharedSlice::from_slice(&mut table);
            fill_table(0..TOKENS, &spec.rope, &positions, &table);
            let rotation = Rotation { spec: &spec.rope, table };
            // All eight heads of Q and K rotated as one row.
            let mut qk: Vec<f32> = joint.chunks(width).flat_map(|row| row[..qk_width].to_vec()).collect();
            let v: Vec<f32> = joint.chunks(width).flat_map(|row| row[qk_width..].to_vec()).collect();
            let mut rotated = vec![0.0; TOKENS * qk_width];
            let view = Rows::from_slice(&mut qk, qk_width, qk_width);
            rope(
                Isa::Scalar,
                0..TOKENS,
                &rotation,
                8,
                dim as usize,
                &view,
                &Rows::from_slice(&mut rotated, qk_width, qk_width),
            );
            let q: Vec<f32> = rotated.chunks(qk_width).flat_map(|row| row[..q_width].to_vec()).collect();
            let k: Vec<f32> = rotated.chunks(qk_width).flat_map(|row| row[q_width..].to_vec()).collect();
            for isa in Isa::available() {
                let arena = arena(&case);
                let (group, rows) = (case.group(), cells(&case));
                let target =
                    StoreTarget { group: &group, layer_index: 1, cells: arena.cells(0), rows: &rows };
                let mut out = vec![0.0; TOKENS * q_width];
                for index in 0..3 {
                    let share = Worker { index, count: 3 }.share(TOKENS);
                    let input = Rows::from_slice(&mut joint, width, width);
                    let out = Rows::from_slice(&mut out, q_width, q_width);
                    rope_store(isa, share, &spec, &rotation, &target, &input, &out);
                }
                assert_eq!(out, q, "{isa}");
                assert_stored(&case, &arena, &k, &v);
            }
        }
    }
}
