//! What the machine allows, measured: the figures that a benchmark's results are shares of.

use std::hint::black_box;
use std::time::Instant;

use crate::Pool;
use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::threads::Worker;

/// Bytes of a prefetched distance: far enough to hide memory's latency behind the lines in between.
const PREFETCH_DISTANCE: usize = 4096;
/// Bytes that one iteration reads.
const READ_STEP: usize = 512;
/// Bytes that a round reads at least.
const LEAST_READ: usize = 1 << 20;
/// Independent chains of the peak loop: more than latency times width of any processor.
const CHAINS: usize = 16;

/// Bytes per second that all workers together read from memory that has been written, the best of `rounds`. No memory is taken.
///
/// Take the weights themselves: a model that fits into a cache is fed from the cache.
pub fn read_bandwidth(pool: &Pool, isa: Isa, memory: &[&[u8]], rounds: usize) -> f64 {
    let blocks: Vec<&[[u8; READ_STEP]]> = memory.iter().map(|part| part.as_chunks().0).collect();
    let total: usize = blocks.iter().map(|part| part.len()).sum();
    // Little memory is read often enough that the threads' start does not count.
    let passes = LEAST_READ.div_ceil(total.max(1) * READ_STEP);
    let mut best = f64::INFINITY;
    for _ in 0..=rounds {
        let start = Instant::now();
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
        best = best.min(start.elapsed().as_secs_f64());
    }
    (passes * total * READ_STEP) as f64 / best
}

/// [`read_bandwidth`] of a buffer of `bytes` bytes.
///
/// # Errors
/// The buffer's memory was refused.
pub fn buffer_bandwidth(pool: &Pool, isa: Isa, bytes: usize, rounds: usize) -> std::io::Result<f64> {
    let mut map = memmap2::MmapMut::map_anon(bytes.max(READ_STEP))?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage)?;
    // Pages that were never written all read from one page of zeros.
    map.fill(1);
    Ok(read_bandwidth(pool, isa, &[&map], rounds))
}

/// Multiplications and additions per second of 8-bit integer dots that all workers together do in registers, the best of
/// `rounds`.
pub fn int8_peak(pool: &Pool, isa: Isa, rounds: usize) -> f64 {
    let iterations = 200_000;
    let mut best = f64::INFINITY;
    for _ in 0..=rounds {
        let start = Instant::now();
        pool.run(&|_, _| {
            black_box(isa.run(DotPeak { iterations, seed: black_box(1) }));
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    let operations = 2 * 4 * LANES * CHAINS * iterations * pool.threads();
    operations as f64 / best
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

struct DotPeak {
    iterations: usize,
    seed: i8,
}

impl Kernel for DotPeak {
    type Output = [i32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> [i32; LANES] {
        let weights = simd.load_bytes(&black_box([3; 64]));
        let mut sums = [simd.splat_i32(0); CHAINS];
        for iteration in 0..self.iterations {
            let activations = [self.seed, iteration as i8, 1, 2];
            for sum in &mut sums {
                *sum = simd.dot4(*sum, weights, activations);
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
    fn limits_are_positive_on_every_instruction_set() {
        let pool = Pool::new(2).expect("threads");
        for isa in Isa::available() {
            assert!(int8_peak(&pool, isa, 1) > 1e6, "{isa}");
            assert!(buffer_bandwidth(&pool, isa, 1 << 22, 1).expect("memory") > 1e6, "{isa}");
            // Parts shorter than a worker's share, and none that is as long as a step.
            let parts = [&[1; 700][..], &[1; 5000], &[], &[1; 512], &[1; 99]];
            assert!(read_bandwidth(&pool, isa, &parts, 1) > 1e6, "{isa}");
            assert_eq!(read_bandwidth(&pool, isa, &[&[1; 99]], 1), 0.0, "{isa}");
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
