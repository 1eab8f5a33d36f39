//! Prints how fast attention is on made-up rows:
//! `cargo test --release -p minfer-cpu attention::tests::speed -- --ignored --nocapture`.

use std::time::Instant;

use super::*;
use crate::Pool;

/// One layer's attention of one sequence.
#[derive(Debug, Clone, Copy)]
struct AttentionShape {
    /// Query heads.
    heads: u32,
    /// Key and value heads.
    kv_heads: u32,
    /// Elements of every head.
    dim: u32,
    /// Storage of K and V.
    format: KvFormat,
    /// Positions that were cached before.
    cached: u32,
    /// Query rows that follow them; each sees all positions up to its own.
    queries: u32,
}

/// What the fastest round took.
#[derive(Debug, Clone, Copy)]
struct AttentionSpeed {
    /// Wall-clock time.
    seconds: f64,
    /// Multiplications and additions of both products over what is visible.
    flops: f64,
    /// K and V of all positions, once.
    bytes: f64,
}

impl AttentionShape {
    fn group(&self) -> KvGroupSpec {
        KvGroupSpec {
            layers: vec![0],
            kv_heads: self.kv_heads,
            k_dim: self.dim,
            v_dim: self.dim,
            window: None,
            k_format: self.format,
            v_format: self.format,
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
        }
    }

    fn spec(&self) -> AttentionSpec {
        AttentionSpec {
            layer: 0,
            heads: self.heads,
            kv_heads: self.kv_heads,
            k_dim: self.dim,
            v_dim: self.dim,
            scale: (1.0 / (self.dim as f32).sqrt()).into(),
            mask: Mask::Causal,
            softcap: None,
            sinks: None,
            rope: None,
        }
    }

    fn length(&self) -> u32 {
        self.cached + self.queries
    }

    fn flops(&self) -> f64 {
        let (cached, queries) = (f64::from(self.cached), f64::from(self.queries));
        let visible = cached * queries + queries * (queries + 1.0) / 2.0;
        4.0 * visible * f64::from(self.heads) * f64::from(self.dim)
    }
}

/// Attention of one shape on every worker of a pool, the best of some rounds.
fn attention(pool: &Pool, isa: Isa, shape: AttentionShape, rounds: usize) -> AttentionSpeed {
    let (spec, group) = (shape.spec(), shape.group());
    let blocks = shape.length().div_ceil(group.block_tokens);
    let mut arena = CpuArena::new(&KvSpec { groups: vec![group.clone()], max_blocks: vec![blocks] }).unwrap();
    for block in 0..blocks {
        arena.commit(0, block).unwrap();
    }
    fill(&arena, shape.format);
    let table: Vec<u32> = (0..blocks).collect();
    let positions: Vec<u32> = (shape.cached..shape.length()).collect();
    let zeros = vec![0; positions.len()];
    let kv = [KvGroupBatch { cells: &zeros, block_tables: &[BlockTable::Aligned(&table)] }];
    let sequences = [SequenceView { rows: 0..shape.queries, cached: shape.cached }];
    let batch =
        Batch { token_ids: &zeros, positions: &positions, sequences: &sequences, kv: &kv, output_rows: &[] };
    let mut plan = AttentionPlan::default();
    plan.rebuild(&PlanShape::from(&spec), &batch, pool.threads(), usize::MAX);
    let width = (shape.heads * shape.dim) as usize;
    let mut q: Vec<f32> = (0..positions.len() * width).map(|i| (i % 31) as f32 / 16.0 - 1.0).collect();
    let mut out = vec![0.0; positions.len() * width];
    let mut partials = vec![0.0; plan.partial_floats()];
    let args = AttentionArgs {
        spec: &spec,
        group: &group,
        group_index: 0,
        layer_index: 0,
        cells: arena.cells(0),
        batch: &batch,
        q: Rows::from_slice(&mut q, width, width),
        out: Rows::from_slice(&mut out, width, width),
        k_shift: None,
        sinks: None,
        plan: &plan,
        partials: SharedSlice::from_slice(&mut partials),
    };
    let seconds = (0..rounds).map(|_| round(pool, isa, &args)).fold(f64::INFINITY, f64::min);
    let bytes = f64::from(shape.length()) * group.bytes_per_token() as f64;
    AttentionSpeed { seconds, flops: shape.flops(), bytes }
}

/// One call on all workers; its seconds.
fn round(pool: &Pool, isa: Isa, args: &AttentionArgs<'_>) -> f64 {
    let counters = [ChunkCounter::with_shares(pool.threads()), ChunkCounter::default()];
    let scratch: Vec<_> = (0..pool.threads())
        .map(|_| std::sync::Mutex::new(AttentionScratch::new([(args.spec, args.group)])))
        .collect();
    let start = Instant::now();
    pool.run(&|worker, barrier| {
        let mut scratch =
            scratch[worker.index].lock().expect("no worker panics while it holds its own scratch");
        run(isa, worker, &counters[0], &mut scratch, args);
        if args.plan.needs_finish() {
            barrier.wait();
            finish(isa, &counters[1], &mut scratch, args);
        }
    });
    start.elapsed().as_secs_f64()
}

/// Numbers from -1 to 1 in every cell.
fn fill(arena: &CpuArena, format: KvFormat) {
    let cells = arena.cells(0);
    let value = |i: usize| (i % 61) as f32 / 30.0 - 1.0;
    match format {
        KvFormat::F32 => {
            let memory = cells.singles.get_mut(0..cells.singles.len());
            memory.iter_mut().enumerate().for_each(|(i, cell)| *cell = value(i));
        }
        KvFormat::F16 => {
            let memory = cells.halves.get_mut(0..cells.halves.len());
            memory
                .iter_mut()
                .enumerate()
                .for_each(|(i, cell)| *cell = half::f16::from_f32(value(i)).to_bits());
        }
        KvFormat::Q8_0 | KvFormat::Q4_0 => {
            // Scales are bytes too: 0x2e2e is an f16 of about 0.1.
            let memory = cells.bytes.get_mut(0..cells.bytes.len());
            memory.fill(0x2e);
        }
        KvFormat::BF16 => {
            let memory = cells.halves.get_mut(0..cells.halves.len());
            memory
                .iter_mut()
                .enumerate()
                .for_each(|(i, cell)| *cell = half::bf16::from_f32(value(i)).to_bits());
        }
    }
}

#[test]
#[ignore = "prints speeds"]
fn print_speeds() {
    println!("heads/kv dim format | threads | prefill 512, 4096 GFLOP/s | decode at 512, 4096 GB/s, GFLOP/s");
    for (heads, kv_heads, dim) in [(9, 3, 64), (14, 2, 64), (12, 2, 128), (4, 1, 256)] {
        for (format, threads) in KvFormat::ALL.into_iter().flat_map(|format| [(format, 1), (format, 2)]) {
            let pool = Pool::new(threads).unwrap();
            print!("{heads:2}/{kv_heads} {dim:3} {format:4} | {threads} |");
            for (cached, queries) in [(0, 512), (3584, 512), (511, 1), (4095, 1)] {
                let shape = AttentionShape { heads, kv_heads, dim, format, cached, queries };
                let speed = attention(&pool, Isa::best(), shape, if queries == 1 { 400 } else { 20 });
                let gflops = speed.flops / speed.seconds / 1e9;
                if queries == 1 {
                    print!(" {:6.1} {gflops:6.1}", speed.bytes / speed.seconds / 1e9);
                } else {
                    print!(" {gflops:6.1}");
                }
            }
            println!();
        }
    }
}
