//! How fast products and packing are on made-up weights, for benches.

use std::time::Instant;

use minfer_tensor::DType;
use zerocopy::FromBytes;

use super::{Chunks, Input, Piece, linear as product, terms_read};
use crate::memory::{Mapping, Region};
use crate::pack::{PackError, PackedMatrix};
use crate::quantise::{GROUP, QuantisedRows};
use crate::threads::{ChunkCounter, Rows, SharedSlice};
use crate::{Isa, Pool};

/// Panels that a worker packs at a time.
const PACK_PANELS: usize = 16;

/// One matrix and its activations.
#[derive(Debug, Clone, Copy)]
pub struct LinearShape {
    /// Type of the weights.
    pub dtype: DType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Tokens at once.
    pub tokens: usize,
}

/// What the fastest round took.
#[derive(Debug, Clone, Copy)]
pub struct LinearSpeed {
    /// Wall-clock time.
    pub seconds: f64,
    /// Multiplications and additions.
    pub operations: f64,
    /// Bytes of weights as they are stored in memory, once.
    pub bytes: f64,
    /// Bytes of weights in the file.
    pub file_bytes: f64,
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
///
/// # Errors
/// The matrix cannot be packed.
pub fn linear(pool: &Pool, isa: Isa, shape: LinearShape, rounds: usize) -> Result<LinearSpeed, PackError> {
    let LinearShape { dtype, rows, columns, tokens } = shape;
    let matrix = PackedMatrix::pack(dtype, rows, columns, &shape.weights())?;
    let mut values = numbers(tokens * columns);
    let mut memory = Region::new(4 * QuantisedRows::words(tokens, columns, terms_read(dtype)))?;
    let memory = <[u32]>::mut_from_bytes(&mut memory).expect("regions are aligned");
    let mut output = Region::new(4 * tokens * rows)?;
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
    Ok(shape.speed(seconds, matrix.resident_bytes()))
}

/// Takes memory for a matrix and packs it. Tokens play no part.
///
/// # Errors
/// The matrix cannot be packed.
pub fn pack(pool: &Pool, shape: LinearShape, rounds: usize) -> Result<LinearSpeed, PackError> {
    let weights = shape.weights();
    let mut bytes = 0;
    let mut failure = Ok(());
    let seconds = best_of(rounds, || {
        failure = fresh(pool, shape, &weights).map(|matrix| bytes = matrix.resident_bytes());
    });
    failure.map(|()| shape.speed(seconds, bytes))
}

fn fresh(pool: &Pool, shape: LinearShape, weights: &[u8]) -> Result<PackedMatrix, PackError> {
    let LinearShape { dtype, rows, columns, .. } = shape;
    let mut memory = Mapping::new(PackedMatrix::footprint(dtype, rows, columns)?)?;
    let mut matrix = PackedMatrix::allocate(&mut memory, dtype, rows, columns)?;
    let panels = matrix.panels();
    let (packer, counter) = (matrix.packer(), ChunkCounter::default());
    pool.run(&|_, _| {
        while let Some(panels) = counter.claim(panels, PACK_PANELS) {
            let stored = &weights[packer.stored(panels.clone())];
            packer.pack_panels(stored, panels).expect("the weights were made for the matrix");
        }
    });
    Ok(matrix)
}

/// Quantises rows of activations as Q4_K weights read them; `bytes` are those of the f32 values.
///
/// # Panics
/// The columns are no whole number of blocks of 32.
pub fn quantise(pool: &Pool, isa: Isa, rows: usize, columns: usize, rounds: usize) -> LinearSpeed {
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

/// Seconds of the fastest of some rounds, after one that is not counted.
fn best_of(rounds: usize, mut round: impl FnMut()) -> f64 {
    round();
    let mut best = f64::INFINITY;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}
