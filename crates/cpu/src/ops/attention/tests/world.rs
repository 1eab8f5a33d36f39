//! Sequences in a cache, the operation on them, and the f64 reference.

use super::*;

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

    /// Stores and attends the next rows of some sequences; returns their results, one after the
    /// other.
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
            // A table may have entries behind the sequence's end; they mean nothing.
            blocks.extend([u32::MAX - 1, EVICTED]);
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
    let mut angles = KShiftAngles::default();
    let turn = spec.rope.clone().map(|rope| RopeSpec { magnitude: 1.0.into(), ..rope });
    angles.rebuild(turn.as_slice(), batch);
    let (offsets, tables) = angles.parts();
    let k_shift = spec.rope.as_ref().map(|spec| {
        let table = SharedSlice::from_slice(&mut tables[0]);
        KShift { offsets, rotation: Rotation { spec, table } }
    });
    let args = AttentionArgs {
        spec: &spec,
        group: &group,
        group_index: 0,
        layer_index: 1,
        cells: arena.cells(0),
        batch,
        q: Rows::from_slice(q, q_width, q_width),
        out: Rows::from_slice(&mut out, out_width, out_width),
        k_shift,
        sinks: case.sinks.then_some(sinks),
        plan: &plan,
        partials: SharedSlice::from_slice(&mut partials),
    };
    let counters = [ChunkCounter::with_shares(way.workers), ChunkCounter::default()];
    let work = |phase: usize, index: usize| {
        let mut scratch = AttentionScratch::new([(&spec, &group)]);
        if phase == 0 {
            run(way.isa, Worker { index, count: way.workers }, &counters[0], &mut scratch, &args);
        } else {
            finish(way.isa, &counters[1], &mut scratch, &args);
        }
    };
    let work = &work;
    for phase in 0..2 {
        std::thread::scope(|scope| {
            for index in 1..way.workers {
                scope.spawn(move || work(phase, index));
            }
            work(phase, 0);
        });
    }
    out
}

/// A query as the format of K asks for it.
pub(super) fn rounded(format: KvFormat, query: &[f32]) -> Vec<f64> {
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
pub(super) fn reference(case: &Case, sequence: &Sequence, sinks: &[f32], length: usize) -> Vec<f64> {
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

pub(super) fn assert_near(case: &Case, got: &[f32], expected: &[f64]) {
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

pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

pub(super) fn best(workers: usize) -> Way {
    Way { isa: Isa::best(), workers, capacity: usize::MAX }
}
