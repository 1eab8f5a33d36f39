//! Attention against a plain f64 reference, and against itself under every way of doing it.

use minfer_graph::backend::KvArena;
use minfer_graph::{
    BlockTable, EVICTED, F32Bits, KvFormat, KvGroupBatch, KvLayout, KvSide, KvSpec, RopeSpec, SequenceView,
    WeightId,
};
use minfer_tensor::blocks::{q4_0, q8_0};

mod case;
mod shifts;
mod speed;
mod world;

use super::*;
use crate::arena::CpuArena;
use crate::math::testing::Numbers;
use crate::ops::rope::Rotation;
pub(crate) use case::{Case, Sequence, encode, places, stored, write};
pub(crate) use world::*;

/// Every instruction set, and each format's own arithmetic, on odd shapes.
#[test]
fn results_are_near_the_f64_reference_on_odd_shapes() {
    for format in KvFormat::ALL {
        for (heads, kv_heads, dim) in [
            (3, 3, 16),
            (2, 1, 24),
            (9, 3, 32),
            (4, 1, 64),
            (9, 1, 64),
            (14, 2, 64),
            (5, 1, 80),
            (6, 1, 96),
            (7, 1, 128),
            (8, 1, 256),
        ] {
            let case = Case::new(heads, kv_heads, dim, format);
            if !case.can_be_stored() {
                continue;
            }
            let sequences = [Sequence::random(&case, 150, 1)];
            let expected = reference(&case, &sequences[0], &[], 150);
            let mut first: Option<Vec<u32>> = None;
            for isa in Isa::available() {
                let way = Way { isa, ..best(1) };
                let out = World::new(&case, &sequences, None).step(way, &[(0, 150)]);
                assert_near(&case, &out, &expected);
                let out = bits(&out);
                assert!(first.get_or_insert_with(|| out.clone()) == &out, "{case:?}: {isa} has other bits");
            }
        }
    }
}

#[test]
fn masks_caps_and_sinks_are_near_the_f64_reference() {
    for format in KvFormat::ALL {
        for mask in [
            Mask::Causal,
            Mask::Bidirectional,
            Mask::Window(1),
            Mask::Window(7),
            Mask::Window(63),
            Mask::Window(64),
            Mask::Window(65),
            Mask::Window(100),
        ] {
            for (softcap, sinks) in [(None, false), (Some(3.0), false), (None, true)] {
                let case = Case { mask, softcap, sinks, ..Case::new(4, 2, 32, format) };
                let sequences = [Sequence::random(&case, 210, 2)];
                let mut world = World::new(&case, &sequences, Some(4));
                let expected = reference(&case, &sequences[0], &world.sinks, 210);
                let out = world.step(best(2), &[(0, 210)]);
                assert_near(&case, &out, &expected);
            }
        }
    }
}

/// Rows at the borders of tiles and spans, alone and together, split by span and not.
#[test]
fn decode_equals_prefill_at_the_borders_of_tiles_and_spans() {
    for format in KvFormat::ALL {
        for mask in [Mask::Causal, Mask::Window(70), Mask::Window(1025)] {
            let case = Case { mask, ..Case::new(3, 1, 32, format) };
            let sequences = [Sequence::random(&case, 1100, 3)];
            let whole = World::new(&case, &sequences, None).step(best(1), &[(0, 1100)]);
            assert_near(&case, &whole, &reference(&case, &sequences[0], &[], 1100));
            let width = 96;
            for (workers, capacity) in [(1, 0), (2, usize::MAX), (3, 0)] {
                let mut world = World::new(&case, &sequences, Some(5));
                let mut start = 0;
                for end in [1, 2, 63, 64, 65, 66, 128, 1023, 1024, 1025, 1026, 1100] {
                    let way = Way { isa: Isa::best(), workers, capacity };
                    let out = world.step(way, &[(0, end - start)]);
                    let expected = &whole[start * width..end * width];
                    assert!(bits(&out) == bits(expected), "{case:?}: rows {start}..{end}, {way:?}");
                    start = end;
                }
            }
        }
    }
}

/// The contract: a prompt of 700 tokens in pieces, on any number of workers, any blocks, any mates.
#[test]
fn a_row_depends_on_nothing_but_what_it_sees() {
    let formats = KvFormat::ALL.into_iter();
    for (format, mask) in formats.flat_map(|format| [(format, Mask::Causal), (format, Mask::Window(64))]) {
        let case = Case { mask, ..Case::new(6, 2, 32, format) };
        let sequences: Vec<Sequence> =
            [700, 90, 1300].iter().map(|&n| Sequence::random(&case, n, n as u64)).collect();
        let whole = World::new(&case, &sequences[..1], None).step(best(1), &[(0, 700)]);
        let width = (case.heads * case.v_dim) as usize;
        let mut turn = 0;
        for chunk in [1, 7, 64, 512] {
            for block_tokens in [16, 64, 128, 512] {
                turn += 1;
                let case = Case { block_tokens, ..case.clone() };
                let mut world = World::new(&case, &sequences, Some(turn));
                world.step(best(1), &[(2, 1200)]);
                let mut done = 0;
                while done < 700 {
                    let count = chunk.min(700 - done);
                    let way = Way {
                        isa: Isa::available().nth(done / 100 % 3).unwrap_or(Isa::best()),
                        workers: 1 + done % 3,
                        capacity: if done % 2 == 0 { usize::MAX } else { 4000 },
                    };
                    let way = if chunk == 1 && way.isa == Isa::Scalar { best(2) } else { way };
                    let mates = match done / chunk % 4 {
                        1 if world.cached[1] < 60 => vec![(1, 30), (0, count)],
                        2 if world.cached[2] < 1290 => vec![(0, count), (2, 1)],
                        3 if world.cached[1] < 90 && world.cached[2] < 1299 => {
                            vec![(2, 1), (0, count), (1, 1)]
                        }
                        _ => vec![(0, count)],
                    };
                    let out = world.step(way, &mates);
                    let index = mates.iter().position(|mate| mate.0 == 0).unwrap();
                    let before: usize = mates[..index].iter().map(|mate| mate.1).sum();
                    let out = &out[before * width..(before + count) * width];
                    let expected = &whole[done * width..(done + count) * width];
                    assert!(
                        bits(out) == bits(expected),
                        "{format} {mask:?} {way:?} at {done}, chunk {chunk}, {block_tokens}"
                    );
                    done += count;
                }
            }
        }
    }
}

/// Dims of a head that fill no vector, where the format has such.
pub(crate) fn least_dim(format: KvFormat) -> u32 {
    24u32.next_multiple_of(format.block_dims())
}

/// What lies in cells that a query does not see never reaches it, whatever it is.
#[test]
fn hidden_cells_may_hold_anything() {
    for format in KvFormat::ALL {
        for mask in [Mask::Causal, Mask::Window(33)] {
            let case = Case { mask, ..Case::new(4, 2, least_dim(format), format) };
            let clean = Sequence::random(&case, 101, 8);
            for last in [64, 65, 66, 99, 100] {
                let kv = (case.kv_heads * case.k_dim) as usize;
                let mut dirty = clean.clone();
                // Later rows, and with a window those before it.
                let hidden = match mask {
                    Mask::Window(n) => (0..last + 1 - n as usize).chain(last + 1..101),
                    _ => (0..0).chain(last + 1..101),
                };
                for (index, position) in hidden.enumerate() {
                    let value = [f32::NAN, f32::INFINITY, -1e30, f32::NEG_INFINITY][index % 4];
                    dirty.k[position * kv..(position + 1) * kv].fill(value);
                    dirty.v[position * kv..(position + 1) * kv].fill(value);
                }
                let width = (case.heads * case.v_dim) as usize;
                let row = last * width..(last + 1) * width;
                let sequences = [clean.clone(), dirty];
                let expected =
                    World::new(&case, &sequences, None).step(best(1), &[(0, 101)])[row.clone()].to_vec();
                let mut world = World::new(&case, &sequences, None);
                let together = world.step(best(1), &[(1, 101)])[row].to_vec();
                assert!(bits(&together) == bits(&expected), "{case:?}: position {last} in a chunk");
                world.cached[1] = last;
                let alone = world.step(best(2), &[(1, 1)]);
                assert!(bits(&alone) == bits(&expected), "{case:?}: position {last} alone over stale cells");
            }
        }
    }
}

/// Tiles that no query of a block sees are not looked at: with a window the work is that of the
/// window.
#[test]
fn tiles_outside_of_a_window_are_skipped() {
    let case =
        Case { mask: Mask::Window(64), softcap: Some(50.0), v_dim: 48, ..Case::new(4, 1, 32, KvFormat::F16) };
    let sequences = [Sequence::random(&case, 3000, 9)];
    let mut world = World::new(&case, &sequences, Some(6));
    let out = world.step(best(2), &[(0, 3000)]);
    assert_near(&case, &out, &reference(&case, &sequences[0], &[], 3000));
    let batch = Batch {
        token_ids: &[0],
        positions: &[2999],
        sequences: &[SequenceView { rows: 0..1, cached: 2999 }],
        kv: &[],
        output_rows: &[],
    };
    let mut plan = AttentionPlan::default();
    plan.rebuild(&PlanShape::from(&case.spec()), &batch, 2, usize::MAX);
    let spans: Vec<_> = plan.items().iter().map(|item| item.spans.clone()).collect();
    assert!(spans.iter().all(|spans| *spans == (2..3)), "{spans:?}");
}

#[test]
fn formats_of_k_and_v_may_differ_and_layouts_change_nothing() {
    for k_format in KvFormat::ALL {
        for v_format in KvFormat::ALL {
            let case = Case { k_format, v_format, v_dim: 64, ..Case::new(6, 2, 32, k_format) };
            let sequences = [Sequence::random(&case, 130, 6)];
            let out = World::new(&case, &sequences, None).step(best(2), &[(0, 130)]);
            assert_near(&case, &out, &reference(&case, &sequences[0], &[], 130));
            for layout in KvLayout::ALL {
                for (block_tokens, mask) in [(16, Mask::Causal), (64, Mask::Causal), (16, Mask::Window(50))] {
                    let case = Case { layout, block_tokens, mask, ..case.clone() };
                    let mut world = World::new(&case, &sequences, Some(2));
                    let found = [world.step(best(2), &[(0, 99)]), world.step(best(1), &[(0, 31)])].concat();
                    match mask {
                        Mask::Causal => assert!(bits(&found) == bits(&out), "{case:?} has other bits"),
                        _ => assert_near(&case, &found, &reference(&case, &sequences[0], &[], 130)),
                    }
                }
            }
        }
    }
}
