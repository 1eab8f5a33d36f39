//! Prints how fast products, packing and quantising are on made-up weights, and their shares of the
//! roofline in the same minute: `cargo test --release -p minfer-cpu linear::tests::speed --
//! --ignored --nocapture`.

use std::sync::Mutex;

use minfer_tensor::DType;
use zerocopy::FromBytes;

use super::super::linear as product;
use super::super::{Chunks, Input, Piece, terms_read};
use crate::memory::{Mapping, Region};
use crate::pack::PackedMatrix;
use crate::quantise::{GROUP, QuantisedRows};
use crate::roofline::{best_of, int8_peak, read_bandwidth};
use crate::threads::{ChunkCounter, Rows, SharedSlice};
use crate::{Isa, Pool};

/// Panels that a worker packs at a time.
const PACK_PANELS: usize = 16;

/// One matrix and its activations.
#[derive(Debug, Clone, Copy)]
struct LinearShape {
    /// Type of the weights.
    dtype: DType,
    /// Outputs.
    rows: usize,
    /// Inputs.
    columns: usize,
    /// Tokens at once.
    tokens: usize,
}

/// What the fastest round took.
#[derive(Debug, Clone, Copy)]
struct LinearSpeed {
    /// Wall-clock time.
    seconds: f64,
    /// Multiplications and additions.
    operations: f64,
    /// Bytes of weights as they are stored in memory, once.
    bytes: f64,
    /// Bytes of weights in the file.
    file_bytes: f64,
}

impl LinearShape {
    fn file_bytes(&self) -> usize {
        self.rows * self.columns / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// Bytes that are ordinary numbers in every type.
    fn weights(&self) -> Vec<u8> {
        vec![0x35; self.file_bytes()]
    }

    fn speed(&self, seconds: f64, bytes: usize) -> LinearSpeed {
        LinearSpeed {
            seconds,
            operations: 2.0 * self.rows as f64 * self.columns as f64 * self.tokens as f64,
            bytes: bytes as f64,
            file_bytes: self.file_bytes() as f64,
        }
    }
}

/// Multiplies a matrix with activations that are quantised before.
fn linear(pool: &Pool, isa: Isa, shape: LinearShape, rounds: usize) -> LinearSpeed {
    let LinearShape { dtype, rows, columns, tokens } = shape;
    let matrix = PackedMatrix::pack(dtype, rows, columns, &shape.weights()).unwrap();
    let mut values = numbers(tokens * columns);
    let mut memory = Region::new(4 * QuantisedRows::words(tokens, columns, terms_read(dtype))).unwrap();
    let memory = <[u32]>::mut_from_bytes(&mut memory).expect("regions are aligned");
    let mut output = Region::new(4 * tokens * rows).unwrap();
    let output = <[f32]>::mut_from_bytes(&mut output).expect("regions are aligned");
    let output = Rows::from_slice(output, rows, rows);
    let input = if dtype.is_quantised() {
        let view = QuantisedRows::new(SharedSlice::from_slice(memory), tokens, columns, terms_read(dtype));
        for (row, values) in values.chunks_exact(columns).enumerate() {
            view.quantise_row(isa, row, values);
        }
        Input::Quantised(view)
    } else {
        Input::Plain(Rows::from_slice(&mut values, columns, columns))
    };
    let matrices = [&matrix];
    let chunks = Chunks::new(&matrices, tokens);
    let count = chunks.count();
    let seconds = best_of(rounds, || {
        let counter = ChunkCounter::default();
        pool.run(&|_, _| {
            while let Some(pieces) = counter.claim(count, 1) {
                for piece in pieces {
                    let Piece { panels, tokens, .. } = chunks.get(piece);
                    product(isa, &matrix, panels, input, tokens, None, &output, 0);
                }
            }
        });
    });
    shape.speed(seconds, matrix.resident_bytes())
}

/// Takes memory for a matrix and packs it. Tokens play no part.
fn pack(pool: &Pool, shape: LinearShape, rounds: usize) -> LinearSpeed {
    let weights = shape.weights();
    let mut bytes = 0;
    let seconds = best_of(rounds, || bytes = fresh(pool, shape, &weights).resident_bytes());
    shape.speed(seconds, bytes)
}

fn fresh(pool: &Pool, shape: LinearShape, weights: &[u8]) -> PackedMatrix {
    let LinearShape { dtype, rows, columns, .. } = shape;
    let mut memory = Mapping::new(PackedMatrix::footprint(dtype, rows, columns).unwrap()).unwrap();
    let mut matrix = PackedMatrix::allocate(&mut memory, dtype, rows, columns).unwrap();
    let parts: Vec<_> = matrix.parts(PACK_PANELS).collect();
    let queue = Mutex::new(parts.into_iter());
    pool.run(&|_, _| {
        while let Some(mut part) = { queue.lock().unwrap().next() } {
            part.pack(&weights[part.stored()]).unwrap();
        }
    });
    matrix
}

/// Quantises rows of activations as Q4_K weights read them; `bytes` are those of the f32 values.
fn quantise(pool: &Pool, isa: Isa, rows: usize, columns: usize, rounds: usize) -> LinearSpeed {
    let values = numbers(rows * columns);
    let terms = terms_read(DType::Q4_K);
    let mut memory = vec![0; QuantisedRows::words(rows, columns, terms)];
    let view = QuantisedRows::new(SharedSlice::from_slice(&mut memory), rows, columns, terms);
    let seconds = best_of(rounds, || {
        let counter = ChunkCounter::default();
        pool.run(&|_, _| {
            while let Some(rows) = counter.claim(rows, GROUP) {
                for row in rows {
                    view.quantise_row(isa, row, &values[row * columns..(row + 1) * columns]);
                }
            }
        });
    });
    let shape = LinearShape { dtype: DType::F32, rows, columns, tokens: 1 };
    shape.speed(seconds, shape.file_bytes())
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 509) as f32 - 254.0).collect()
}

#[test]
#[ignore = "prints speeds"]
fn print_speeds() {
    let (isa, rounds) = (Isa::best(), 10);
    println!("{isa}; GOP/s and GB/s, in brackets the share of the peak or of the bandwidth around it");
    for threads in [1, 2] {
        let pool = Pool::new(threads).unwrap();
        let floats = quantise(&pool, isa, 480, 1024, rounds);
        println!("{threads} threads: quantise {:.1} GB/s of f32", floats.bytes / floats.seconds / 1e9);
        DType::ALL
            .into_iter()
            .filter(|dtype| dtype.is_real())
            .for_each(|dtype| row(&pool, isa, dtype, rounds));
    }
}

fn row(pool: &Pool, isa: Isa, dtype: DType, rounds: usize) {
    print!("{dtype:7}");
    for (rows, columns, tokens) in [(4864, 1024, 480), (1024, 4864, 480), (4864, 1024, 32), (4864, 1024, 8)] {
        let columns = if dtype.block_len() == 256 { columns / 256 * 256 } else { columns };
        let before = int8_peak(pool, isa, 3);
        let speed = linear(pool, isa, LinearShape { dtype, rows, columns, tokens }, rounds);
        let peak = before.max(int8_peak(pool, isa, 3));
        let done = speed.operations / speed.seconds;
        print!(" | T{tokens} {:6.0} ({:2.0} %)", done / 1e9, 100.0 * done / peak);
    }
    // The bandwidth is that of a buffer of the same size, since part of it may stay in a cache.
    let shape = LinearShape { dtype, rows: 32768, columns: 4096, tokens: 1 };
    let mut speed = linear(pool, isa, shape, rounds);
    let mut buffer = Region::new(speed.bytes as usize).unwrap();
    buffer.fill(1);
    let bandwidth = read_bandwidth(pool, isa, &[&buffer], rounds);
    speed.seconds = speed.seconds.min(linear(pool, isa, shape, rounds).seconds);
    let read = speed.bytes / speed.seconds;
    print!(" | T1 {:5.1} ({:3.0} %)", read / 1e9, 100.0 * read / bandwidth);
    let packed = pack(pool, LinearShape { rows: 16384, ..shape }, 2);
    let (rate, growth) = (packed.file_bytes / packed.seconds / 1e9, packed.bytes / packed.file_bytes);
    println!(" | pack {rate:4.1} x {growth:.3}");
}
