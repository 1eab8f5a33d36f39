//! The machine's roofline: the integer products and the bytes per second that a benchmark's results
//! are shares of (Williams, Waterman and Patterson, "Roofline", 2009).

use std::hint::black_box;
use std::time::Instant;

use minfer_graph::backend::LoadedWeights;

use crate::Pool;
use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::backend::packed_memory;
use crate::threads::Worker;

/// Bytes of a prefetched distance: far enough to hide memory's latency behind the lines in between.
const PREFETCH_DISTANCE: usize = 4096;
/// Bytes that one iteration reads.
const READ_STEP: usize = 512;
/// Bytes that a round reads at least.
const LEAST_READ: usize = 1 << 20;
/// Groups of four activations that the peak loop multiplies with, again and again: 1 KiB of the
/// first-level cache.
const ACTIVATIONS: usize = 256;
/// Passes over them in one round.
const PASSES: usize = 12_500;

/// What all workers of a pool reach together.
#[derive(Debug, Clone, Copy)]
pub struct Roofline {
    /// Multiplications and additions per second of 8-bit integer dots in registers.
    pub int8_operations: f64,
    /// Bytes per second read of the packed weights, from the cache where they fit into one.
    pub read_bytes: f64,
}

/// Measures, the best of `rounds`. Takes no memory.
pub fn roofline(pool: &Pool, isa: Isa, weights: &dyn LoadedWeights, rounds: usize) -> Roofline {
    Roofline {
        int8_operations: int8_peak(pool, isa, rounds),
        read_bytes: read_bandwidth(pool, isa, &packed_memory(weights), rounds),
    }
}

/// Bytes per second that all workers together read from memory that has been written.
pub(crate) fn read_bandwidth(pool: &Pool, isa: Isa, memory: &[&[u8]], rounds: usize) -> f64 {
    let blocks: Vec<&[[u8; READ_STEP]]> = memory.iter().map(|part| part.as_chunks().0).collect();
    let total: usize = blocks.iter().map(|part| part.len()).sum();
    // Little memory is read often enough that the threads' start does not count.
    let passes = LEAST_READ.div_ceil(total.max(1) * READ_STEP);
    let seconds = best_of(rounds, || {
        pool.run(&|worker: Worker, _| {
            let share = worker.share(total);
            for _ in 0..passes {
                let mut first = 0;
                for part in &blocks {
                    let place = |at: usize| at.clamp(first, first + part.len()) - first;
                    black_box(isa.run(ReadAll(&part[place(share.start)..place(share.end)])));
                    first += part.len();
                }
            }
        });
    });
    (passes * total * READ_STEP) as f64 / seconds
}

/// Multiplications and additions per second of 8-bit integer dots that all workers together do.
pub(crate) fn int8_peak(pool: &Pool, isa: Isa, rounds: usize) -> f64 {
    let activations: Vec<[i8; 4]> = (0..ACTIVATIONS).map(|i| [i as i8, 3, 1, 2]).collect();
    let seconds = best_of(rounds, || {
        pool.run(&|_, _| {
            black_box(isa.run(DotPeak { activations: &activations, passes: PASSES }));
        });
    });
    let operations = 2 * 4 * LANES * ACTIVATIONS * PASSES * pool.threads();
    operations as f64 / seconds
}

/// Seconds of the fastest of some rounds, after one that is not counted.
pub(crate) fn best_of(rounds: usize, mut round: impl FnMut()) -> f64 {
    round();
    let mut best = f64::INFINITY;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

struct ReadAll<'a>(&'a [[u8; READ_STEP]]);

impl Kernel for ReadAll<'_> {
    type Output = [i32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> [i32; LANES] {
        let mut sums = [simd.splat_i32(0); READ_STEP / 64];
        for block in self.0 {
            for (sum, bytes) in sums.iter_mut().zip(block.as_chunks::<64>().0) {
                simd.prefetch(bytes.as_ptr().wrapping_add(PREFETCH_DISTANCE));
                *sum = simd.dot4(*sum, simd.load_bytes(bytes), [1; 4]);
            }
        }
        total(simd, &sums)
    }
}

/// Dots as a product does them: weights stay in registers, four activations come from memory for
/// each.
struct DotPeak<'a> {
    activations: &'a [[i8; 4]],
    passes: usize,
}

impl Kernel for DotPeak<'_> {
    type Output = [i32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> [i32; LANES] {
        // Sums that depend on nothing but themselves: enough of them to hide the latency of a dot,
        // and few enough that all stay in registers beside the weights. Without registers left the
        // loop would measure loads and stores.
        if S::WIDE { self.chains::<S, 16>(simd) } else { self.chains::<S, 4>(simd) }
    }
}

impl DotPeak<'_> {
    #[inline(always)]
    fn chains<S: Simd, const CHAINS: usize>(self, simd: S) -> [i32; LANES] {
        let weights = simd.load_bytes(&black_box([3; 64]));
        let mut sums = [simd.splat_i32(0); CHAINS];
        for _ in 0..self.passes {
            // Hidden from the compiler, which would otherwise compute the products of a pass only
            // once.
            for activations in black_box(self.activations).as_chunks::<CHAINS>().0 {
                for (sum, four) in sums.iter_mut().zip(activations) {
                    *sum = simd.dot4(*sum, weights, *four);
                }
            }
        }
        total(simd, &sums)
    }
}

#[inline(always)]
fn total<S: Simd>(simd: S, sums: &[S::I32]) -> [i32; LANES] {
    let mut out = [0i32; LANES];
    let mut one = [0i32; LANES];
    for sum in sums {
        simd.store_i32(*sum, &mut one);
        for (out, one) in out.iter_mut().zip(one) {
            *out = out.wrapping_add(one);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_roofs_are_positive_on_every_instruction_set() {
        let pool = Pool::new(2).expect("threads");
        for isa in Isa::available() {
            assert!(int8_peak(&pool, isa, 1) > 1e6, "{isa}");
            // Parts shorter than a worker's share, and none that is as long as a step.
            let parts = [&[1; 700][..], &[1; 5000], &[], &[1; 512], &[1; 99]];
            assert!(read_bandwidth(&pool, isa, &parts, 1) > 1e6, "{isa}");
            assert_eq!(read_bandwidth(&pool, isa, &[&[1; 99]], 1), 0.0, "{isa}");
        }
    }

    #[test]
    fn the_peak_loop_computes_every_dot() {
        let activations: Vec<[i8; 4]> = (0..ACTIVATIONS).map(|i| [i as i8, 3, 1, 2]).collect();
        let one_pass: i32 = 3 * activations.iter().flatten().map(|&value| i32::from(value)).sum::<i32>();
        for isa in Isa::available() {
            let sums = isa.run(DotPeak { activations: &activations, passes: 5 });
            assert_eq!(sums, [5 * one_pass; LANES], "{isa}");
        }
    }

    #[test]
    fn every_byte_is_read_once() {
        let blocks = vec![[1u8; READ_STEP]; 7];
        for isa in Isa::available() {
            let sums = isa.run(ReadAll(&blocks));
            assert_eq!(sums.iter().sum::<i32>(), 7 * READ_STEP as i32, "{isa}");
        }
    }
}
