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
/// Independent chains of the peak loop: more than latency times width of any processor.
const CHAINS: usize = 16;

/// Bytes per second that all workers together read from a buffer of `bytes` bytes, the best of `rounds`.
///
/// Take the size of the weights: a model that fits into a cache is fed from the cache.
///
/// # Errors
/// The buffer's memory was refused.
pub fn read_bandwidth(pool: &Pool, isa: Isa, bytes: usize, rounds: usize) -> std::io::Result<f64> {
    let len = bytes.max(1 << 20).next_multiple_of(READ_STEP);
    let mut map = memmap2::MmapMut::map_anon(len)?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage)?;
    // Pages that were never written all read from one page of zeros.
    map.fill(1);
    let blocks = map.as_chunks::<READ_STEP>().0;
    let mut best = f64::INFINITY;
    for _ in 0..=rounds {
        let start = Instant::now();
        pool.run(&|worker: Worker, _| {
            black_box(isa.run(ReadAll(&blocks[worker.share(blocks.len())])));
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(len as f64 / best)
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
            assert!(read_bandwidth(&pool, isa, 1 << 22, 1).expect("memory") > 1e6, "{isa}");
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
