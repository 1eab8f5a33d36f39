//! Attention against a plain f64 reference, and against itself under every way of doing it.

use minfer_graph::backend::KvArena;
use minfer_graph::{
    BlockTable, EVICTED, F32Bits, KvFormat, KvGroupBatch, KvLayout, KvSide, KvSpec, RopeSpec, SequenceView,
    WeightId,
};
use minfer_tensor::blocks::{q4_0, q8_0};

mod shifts;

use super::*;
use crate::arena::CpuArena;
use crate::math::testing::Numbers;
use crate::ops::rope::Rotation;

/// An operation and how its cache is kept.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) k_dim: u32,
    pub(crate) v_dim: u32,
    pub(crate) k_format: KvFormat,
    pub(crate) v_format: KvFormat,
    pub(crate) layout: KvLayout,
    pub(crate) block_tokens: u32,
    pub(crate) mask: Mask,
    pub(crate) softcap: Option<f32>,
    pub(crate) sinks: bool,
    /// How K was rotated.
    pub(crate) rope: Option<RopeSpec>,
}

impl Case {
    pub(crate) fn new(heads: u32, kv_heads: u32, dim: u32, format: KvFormat) -> Case {
        Case {
            heads,
            kv_heads,
            k_dim: dim,
            v_dim: dim,
            k_format: format,
            v_format: format,
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
            mask: Mask::Causal,
            softcap: None,
            sinks: false,
            rope: None,
        }
    }

    pub(crate) fn group(&self) -> KvGroupSpec {
        KvGroupSpec {
            layers: vec![3, 5],
            kv_heads: self.kv_heads,
            k_dim: self.k_dim,
            v_dim: self.v_dim,
            window: None,
            k_format: self.k_format,
            v_format: self.v_format,
            layout: self.layout,
            block_tokens: self.block_tokens,
        }
    }

    /// The format of one side.
    pub(crate) fn format(&self, side: KvSide) -> KvFormat {
        match side {
            KvSide::K => self.k_format,
            KvSide::V => self.v_format,
        }
    }

    /// Whether its formats can store its heads.
    pub(crate) fn can_be_stored(&self) -> bool {
        self.group().validate().is_ok()
    }

    fn spec(&self) -> AttentionSpec {
        AttentionSpec {
            layer: 5,
            heads: self.heads,
            kv_heads: self.kv_heads,
            k_dim: self.k_dim,
            v_dim: self.v_dim,
            scale: F32Bits::from(1.0 / (self.k_dim as f32).sqrt()),
            mask: self.mask,
            softcap: self.softcap.map(F32Bits::from),
            sinks: self.sinks.then_some(WeightId(0)),
            rope: self.rope.clone(),
        }
    }
}

/// A sequence's rows.
#[derive(Clone)]
pub(crate) struct Sequence {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) length: usize,
}

impl Sequence {
    pub(crate) fn random(case: &Case, length: usize, seed: u64) -> Sequence {
        let mut numbers = Numbers(seed);
        Sequence {
            q: numbers.vec(length * (case.heads * case.k_dim) as usize, 2.0),
            k: numbers.vec(length * (case.kv_heads * case.k_dim) as usize, 2.0),
            v: numbers.vec(length * (case.kv_heads * case.v_dim) as usize, 1.0),
            length,
        }
    }
}

/// A head as its format encodes it.
pub(crate) fn encode(format: KvFormat, values: &[f32]) -> Vec<u8> {
    fn blocks<const N: usize>(values: &[f32], encode: fn(&[f32; 32], &mut [u8; N])) -> Vec<u8> {
        let encoded = |block: &[f32; 32]| {
            let mut bytes = [0; N];
            encode(block, &mut bytes);
            bytes
        };
        values.as_chunks().0.iter().flat_map(encoded).collect()
    }
    match format {
        KvFormat::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        KvFormat::F16 => values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
        KvFormat::BF16 => values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        KvFormat::Q8_0 => blocks(values, q8_0::encode),
        KvFormat::Q4_0 => blocks(values, q4_0::encode),
    }
}

/// What stored numbers become.
pub(crate) fn stored(format: KvFormat, values: &[f32]) -> Vec<f64> {
    let two = |bytes: &[u8]| [bytes[0], bytes[1]];
    let scale = |block: &[u8]| half::f16::from_le_bytes(two(block)).to_f64();
    let bytes = encode(format, values);
    match format {
        KvFormat::F32 => values.iter().map(|&x| f64::from(x)).collect(),
        KvFormat::F16 => bytes.chunks(2).map(|x| half::f16::from_le_bytes(two(x)).to_f64()).collect(),
        KvFormat::BF16 => bytes.chunks(2).map(|x| half::bf16::from_le_bytes(two(x)).to_f64()).collect(),
        KvFormat::Q8_0 => bytes
            .chunks(34)
            .flat_map(|block| block[2..].iter().map(move |&byte| scale(block) * f64::from(byte as i8)))
            .collect(),
        KvFormat::Q4_0 => bytes
            .chunks(18)
            .flat_map(|block| {
                let halves = [0, 4].map(|shift| block[2..].iter().map(move |byte| byte >> shift & 15));
                halves.into_iter().flatten().map(move |quant| scale(block) * (f64::from(quant) - 8.0))
            })
            .collect(),
    }
}

/// Where each byte of an encoded head of the layer at index 1 lies in its group.
pub(crate) fn places(
    case: &Case,
    side: KvSide,
    (block, offset): (u32, usize),
    head: usize,
) -> impl Fn(usize) -> usize {
    let (group, layout) = (case.group(), case.layout);
    let (tokens, heads) = (case.block_tokens as usize, case.kv_heads as usize);
    let (dims, format) = group.side(side);
    let (dims, head_bytes) = (dims as usize, group.head_bytes(side));
    let start = block as usize * group.bytes_per_block() as usize + group.side_offset(1, side) as usize;
    let lanes = move |size, index| {
        (head * head_bytes / size + index / size) * tokens * size + offset * size + index % size
    };
    move |index| {
        let inside = match (layout, side, format) {
            (KvLayout::SeqMajor, ..) => (offset * heads + head) * head_bytes + index,
            (KvLayout::LaneMajor, KvSide::K, KvFormat::F16) => lanes(2, index),
            (KvLayout::LaneMajor, KvSide::K, KvFormat::F32 | KvFormat::BF16) => lanes(4, index),
            (KvLayout::LaneMajor, KvSide::K, KvFormat::Q8_0 | KvFormat::Q4_0) => {
                let block_bytes = format.block_bytes() as usize;
                let (block, into, words) = (index / block_bytes, index % block_bytes, (block_bytes - 2) / 4);
                let place = match into.checked_sub(2) {
                    Some(quant) => 4 * ((block * words + quant / 4) * tokens + offset) + quant % 4,
                    None => 4 * dims / 32 * words * tokens + 2 * (block * tokens + offset) + into,
                };
                head * tokens * head_bytes + place
            }
            (KvLayout::LaneMajor, KvSide::V, KvFormat::BF16) => {
                2 * (((head * tokens / 2 + offset / 2) * dims + index / 2) * 2 + offset % 2) + index % 2
            }
            _ => (head * tokens + offset) * head_bytes + index,
        };
        start + inside
    }
}

/// Writes one head.
pub(crate) fn write(
    cells: KvCells<'_>,
    case: &Case,
    side: KvSide,
    cell: (u32, usize),
    head: usize,
    values: &[f32],
) {
    let place = places(case, side, cell, head);
    for (index, value) in encode(case.format(side), values).into_iter().enumerate() {
        cells.bytes.get_mut(place(index)..place(index) + 1)[0] = value;
    }
}

/// Sequences in a cache full of what is no number until a row is written.
pub(crate) struct World<'a> {
    pub(crate) case: Case,
    pub(crate) arena: CpuArena,
    pub(crate) sequences: &'a [Sequence],
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) cached: Vec<usize>,
    pub(crate) sinks: Vec<f32>,
}

/// How a step is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) isa: Isa,
    pub(crate) workers: usize,
    pub(crate) capacity: usize,
}

impl<'a> World<'a> {
    pub(crate) fn new(case: &Case, sequences: &'a [Sequence], shuffle: Option<u64>) -> World<'a> {
        let tokens = case.block_tokens as usize;
        let blocks: usize = sequences.iter().map(|sequence| sequence.length.div_ceil(tokens)).sum();
        let spec = KvSpec { groups: vec![case.group()], max_blocks: vec![blocks as u32 + 3] };
        let mut arena = CpuArena::new(&spec).unwrap();
        let order = match shuffle {
            Some(seed) => Numbers(seed).order(blocks + 3),
            None => (0..blocks as u32 + 3).collect(),
        };
        let mut next = order.into_iter();
        let mut tables = Vec::new();
        for sequence in sequences {
            tables.push(next.by_ref().take(sequence.length.div_ceil(tokens)).collect::<Vec<_>>());
        }
        for &block in tables.iter().flatten() {
            arena.commit(0, block).unwrap();
        }
        let cells = arena.cells(0);
        cells.pairs.get_mut(0..cells.pairs.len()).fill(u32::MAX);
        let sinks = if case.sinks { Numbers(99).vec(case.heads as usize, 3.0) } else { Vec::new() };
        World { case: case.clone(), arena, sequences, tables, cached: vec![0; sequences.len()], sinks }
    }

    /// Writes a row's K and V.
    fn store(&self, sequence: usize, position: usize) {
        let (case, rows) = (&self.case, &self.sequences[sequence]);
        let tokens = case.block_tokens as usize;
        let (block, offset) = (self.tables[sequence][position / tokens], position % tokens);
        let heads = case.kv_heads as usize;
        for (side, dims, from) in
            [(KvSide::K, case.k_dim as usize, &rows.k), (KvSide::V, case.v_dim as usize, &rows.v)]
        {
            for head in 0..heads {
                let values = &from[(position * heads + head) * dims..][..dims];
                write(self.arena.cells(0), case, side, (block, offset), head, values);
            }
        }
    }

    /// Stores and attends the next rows of some sequences; returns their results, one after the other.
    pub(crate) fn step(&mut self, way: Way, counts: &[(usize, usize)]) -> Vec<f32> {
        let case = &self.case;
        let (mut positions, mut views, mut q) = (Vec::new(), Vec::new(), Vec::new());
        let q_width = (case.heads * case.k_dim) as usize;
        for &(sequence, count) in counts {
            let cached = self.cached[sequence];
            let rows = positions.len() as u32..(positions.len() + count) as u32;
            views.push(SequenceView { rows, cached: cached as u32 });
            for position in cached..cached + count {
                positions.push(position as u32);
                q.extend(&self.sequences[sequence].q[position * q_width..(position + 1) * q_width]);
                self.store(sequence, position);
            }
        }
        let tokens = case.block_tokens as usize;
        // Blocks that no row of the step sees are evicted.
        let blocks = counts.iter().map(|&(sequence, count)| {
            let length = self.cached[sequence] + count;
            let mut blocks = self.tables[sequence][..length.div_ceil(tokens)].to_vec();
            let seen = visible(case.mask, self.cached[sequence] as u32, length as u32).start;
            blocks[..seen / tokens].fill(EVICTED);
            blocks
        });
        let blocks: Vec<Vec<u32>> = blocks.collect();
        let tables: Vec<BlockTable<'_>> = blocks.iter().map(|blocks| BlockTable::Aligned(blocks)).collect();
        let cells = vec![0; positions.len()];
        let kv = [KvGroupBatch { cells: &cells, block_tables: &tables }];
        let token_ids = vec![0; positions.len()];
        let batch = Batch {
            token_ids: &token_ids,
            positions: &positions,
            sequences: &views,
            kv: &kv,
            output_rows: &[],
        };
        let out = attend(case, &self.arena, &self.sinks, way, &batch, &mut q);
        for &(sequence, count) in counts {
            self.cached[sequence] += count;
        }
        out
    }
}

/// The step's results for a cache as it is.
pub(crate) fn attend(
    case: &Case,
    arena: &CpuArena,
    sinks: &[f32],
    way: Way,
    batch: &Batch<'_>,
    q: &mut [f32],
) -> Vec<f32> {
    let (spec, group) = (case.spec(), case.group());
    let (q_width, out_width) = ((spec.heads * spec.k_dim) as usize, (spec.heads * spec.v_dim) as usize);
    let mut plan = AttentionPlan::default();
    plan.rebuild(&PlanShape::from(&spec), batch, way.workers, way.capacity);
    let mut partials = vec![f32::NAN; plan.partial_floats()];
    let mut out = vec![f32::NAN; batch.positions.len() * out_width];
    let mut angles = OffsetAngles::default();
    let turn = spec.rope.clone().map(|rope| RopeSpec { magnitude: 1.0.into(), ..rope });
    angles.rebuild(turn.as_slice(), batch);
    let (offsets, tables) = angles.shared();
    let turns =
        spec.rope.as_ref().map(|spec| Turns { offsets, rotation: Rotation { spec, table: tables[0] } });
    let args = AttentionArgs {
        spec: &spec,
        group: &group,
        group_index: 0,
        layer_index: 1,
        cells: arena.cells(0),
        batch,
        q: Rows::from_slice(q, q_width, q_width),
        out: Rows::from_slice(&mut out, out_width, out_width),
        turns,
        sinks: case.sinks.then_some(sinks),
        plan: &plan,
        partials: SharedSlice::from_slice(&mut partials),
    };
    let counters = [ChunkCounter::default(), ChunkCounter::default()];
    let work = |phase: usize| {
        let mut scratch = AttentionScratch::new([(&spec, &group)]);
        if phase == 0 {
            run(way.isa, &counters[0], &mut scratch, &args);
        } else {
            finish(way.isa, &counters[1], &mut scratch, &args);
        }
    };
    for phase in 0..2 {
        std::thread::scope(|scope| {
            for _ in 1..way.workers {
                scope.spawn(|| work(phase));
            }
            work(phase);
        });
    }
    out
}

/// A query as the format of K asks for it.
fn rounded(format: KvFormat, query: &[f32]) -> Vec<f64> {
    let quantised = |block: &[f32]| -> Vec<f64> {
        let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let quant = |&x: &f32| f64::from((x * (127.0 / largest)).round_ties_even());
        block.iter().map(|x| quant(x) * f64::from(largest / 127.0)).collect()
    };
    match format {
        KvFormat::F32 | KvFormat::F16 => stored(KvFormat::F32, query),
        KvFormat::BF16 => stored(KvFormat::BF16, query),
        KvFormat::Q8_0 | KvFormat::Q4_0 => query.chunks(32).flat_map(quantised).collect(),
    }
}

/// Softmax attention in f64 over stored values, with queries rounded as the format asks.
fn reference(case: &Case, sequence: &Sequence, sinks: &[f32], length: usize) -> Vec<f64> {
    let (heads, kv_heads) = (case.heads as usize, case.kv_heads as usize);
    let (k_dim, v_dim) = (case.k_dim as usize, case.v_dim as usize);
    let each = |values: &[f32], dim: usize, what: &dyn Fn(&[f32]) -> Vec<f64>| -> Vec<Vec<f64>> {
        values.chunks(dim).map(what).collect()
    };
    let q = each(&sequence.q, k_dim, &|head| rounded(case.k_format, head));
    let k = each(&sequence.k, k_dim, &|head| stored(case.k_format, head));
    let v = each(&sequence.v, v_dim, &|head| stored(case.v_format, head));
    let mut out = Vec::new();
    for position in 0..length {
        for head in 0..heads {
            let kv_head = head * kv_heads / heads;
            let seen: Vec<usize> = (0..length)
                .filter(|&other| match case.mask {
                    Mask::Causal => other <= position,
                    Mask::Window(n) => other <= position && other + n as usize > position,
                    Mask::Bidirectional => true,
                })
                .collect();
            let score = |other: usize| {
                let pairs = q[position * heads + head].iter().zip(&k[other * kv_heads + kv_head]);
                let dot: f64 = pairs.map(|(q, k)| q * k).sum();
                let score = dot / (k_dim as f64).sqrt();
                case.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            };
            let scores: Vec<f64> = seen.iter().map(|&other| score(other)).collect();
            let sink = sinks.get(head).map(|&sink| f64::from(sink));
            let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().copied().chain(sink).map(|score| (score - max).exp()).sum();
            for dim in 0..v_dim {
                let value = |other: usize| v[other * kv_heads + kv_head][dim];
                let total: f64 =
                    seen.iter().zip(&scores).map(|(&other, score)| (score - max).exp() * value(other)).sum();
                out.push(total / sum);
            }
        }
    }
    out
}

fn assert_near(case: &Case, got: &[f32], expected: &[f64]) {
    let limit = if case.v_format == KvFormat::BF16 { 4e-3 } else { 3e-6 };
    let width = (case.heads * case.v_dim) as usize;
    assert_eq!(got.len(), expected.len());
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(
            error <= limit,
            "{case:?}: row {} column {}: {got} != {expected}",
            index / width,
            index % width
        );
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn best(workers: usize) -> Way {
    Way { isa: Isa::best(), workers, capacity: usize::MAX }
}

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

/// Tiles that no query of a block sees are not looked at: with a window the work is that of the window.
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
