//! How products are cut into pieces of work that workers claim.

use std::ops::Range;

use crate::pack::PackedMatrix;

/// Pieces of the products of some matrices with the same tokens: piece `i` is a run of panels of one matrix, for all tokens.
#[derive(Clone, Copy)]
pub(crate) struct Chunks<'a> {
    matrices: &'a [&'a PackedMatrix],
    tokens: usize,
}

/// Picoseconds that a core needs for a byte of weights from memory.
const BYTE: usize = 50;
/// Picoseconds that a core needs for sixteen columns of 16 rows and one token.
const COLUMNS: usize = 1000;
/// Picoseconds of a piece: long against a claim, short against the wait for the last piece.
const PIECE: usize = 30_000_000;

impl<'a> Chunks<'a> {
    /// Pieces for `tokens` tokens.
    pub(crate) fn new(matrices: &'a [&'a PackedMatrix], tokens: usize) -> Chunks<'a> {
        Chunks { matrices, tokens }
    }

    /// How many pieces there are; each is claimed on its own.
    pub(crate) fn count(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.panels().div_ceil(self.panels_of(matrix))).sum()
    }

    /// The matrix, by its place in the list, and the panels of a piece.
    ///
    /// # Panics
    /// There is no such piece.
    pub(crate) fn get(&self, mut piece: usize) -> (usize, Range<usize>) {
        for (index, matrix) in self.matrices.iter().enumerate() {
            let size = self.panels_of(matrix);
            let pieces = matrix.panels().div_ceil(size);
            if piece < pieces {
                return (index, piece * size..matrix.panels().min((piece + 1) * size));
            }
            piece -= pieces;
        }
        panic!("no such piece");
    }

    /// Panels of a piece of this matrix.
    fn panels_of(&self, matrix: &PackedMatrix) -> usize {
        let stream = matrix.panel_bytes() * BYTE;
        let compute = self.tokens * matrix.columns().div_ceil(16) * COLUMNS;
        (PIECE / stream.max(compute).max(1)).clamp(1, matrix.panels().max(1))
    }
}

#[cfg(test)]
mod tests {
    use minfer_tensor::DType;

    use super::*;

    #[test]
    fn pieces_cover_every_panel_once() {
        let pack = |rows, columns| {
            PackedMatrix::pack(DType::Q8_0, rows, columns, &vec![0; rows * columns / 32 * 34]).unwrap()
        };
        let (first, second, third) = (pack(1000, 64), pack(16, 256), pack(33, 1024));
        let matrices = [&first, &second, &third];
        for tokens in [1, 3, 64, 5000] {
            let chunks = Chunks::new(&matrices, tokens);
            let mut next = [0; 3];
            for piece in 0..chunks.count() {
                let (index, panels) = chunks.get(piece);
                assert_eq!(panels.start, next[index]);
                assert!(!panels.is_empty());
                next[index] = panels.end;
            }
            assert_eq!(next, matrices.map(PackedMatrix::panels));
        }
    }

    #[test]
    fn more_tokens_make_smaller_pieces() {
        let matrix = PackedMatrix::pack(DType::Q8_0, 4096, 64, &vec![0; 4096 * 68]).unwrap();
        let matrices = [&matrix];
        let count = |tokens| Chunks::new(&matrices, tokens).count();
        assert!(count(1) < count(64) && count(64) < count(512));
    }
}
