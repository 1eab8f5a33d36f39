//! Splits the products of a linear step into pieces that workers claim.

use std::ops::Range;

use super::{gemm, gemv};
use crate::pack::PackedMatrix;

/// Pieces of the products of some matrices with the same tokens.
///
/// Pieces are short against all of the work, so that workers end together, and long against a
/// claim. Neighbouring pieces share their tokens, whose activations then stay in a cache.
#[derive(Clone, Copy)]
pub(crate) struct Chunks<'a> {
    matrices: &'a [&'a PackedMatrix],
    tokens: usize,
    /// Tokens of a piece.
    block: usize,
    /// What a piece should cost, in picoseconds.
    cost: usize,
}

/// Some outputs for some tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Place of the matrix in the list.
    pub(crate) matrix: usize,
    /// Panels of the matrix.
    pub(crate) panels: Range<usize>,
    /// Tokens, at least one.
    pub(crate) tokens: Range<usize>,
}

/// Picoseconds that a core needs for a byte of weights from memory.
const BYTE: usize = 50;
/// Picoseconds that a core needs for sixteen columns of 16 rows and one token.
const COLUMNS: usize = 1000;
/// Bounds of a piece's cost.
const COST: std::ops::RangeInclusive<usize> = 3_000_000..=40_000_000;
/// Pieces of equal cost that all of the work is at least cut into, as far as they do not become too
/// short.
const PIECES: usize = 32;
/// Panels that kernels take together.
const TOGETHER: usize = 2;

impl<'a> Chunks<'a> {
    /// Pieces for `tokens` tokens.
    pub(crate) fn new(matrices: &'a [&'a PackedMatrix], tokens: usize) -> Chunks<'a> {
        let mut chunks = Chunks { matrices, tokens, block: tokens.clamp(1, gemm::TOKENS), cost: 0 };
        let all = |matrix: &&PackedMatrix| matrix.panels().saturating_mul(chunks.cost_of_panel(matrix));
        let total = matrices.iter().map(all).fold(0, usize::saturating_add).saturating_mul(chunks.blocks());
        chunks.cost = (total / PIECES).clamp(*COST.start(), *COST.end());
        chunks
    }

    /// How many pieces there are; each is claimed on its own.
    pub(crate) fn count(&self) -> usize {
        self.blocks() * self.of_block()
    }

    /// A piece.
    ///
    /// # Panics
    /// There is no such piece.
    pub(crate) fn get(&self, index: usize) -> Piece {
        let (block, mut index) = (index / self.of_block(), index % self.of_block());
        let tokens = block * self.block..self.tokens.min((block + 1) * self.block);
        assert!(!tokens.is_empty(), "no such piece");
        for (place, matrix) in self.matrices.iter().enumerate() {
            let size = self.panels_of(matrix);
            let pieces = matrix.panels().div_ceil(size);
            if index < pieces {
                let panels = index * size..matrix.panels().min((index + 1) * size);
                return Piece { matrix: place, panels, tokens };
            }
            index -= pieces;
        }
        unreachable!("the index is below the pieces of a block");
    }

    /// Whether the products are bound by reading the weights, each of them once.
    pub(crate) fn streams(&self) -> bool {
        self.tokens <= gemv::TOKENS
    }

    /// Neighbouring pieces; those of one matrix and the same tokens as one.
    pub(crate) fn joined(&self, pieces: Range<usize>) -> impl Iterator<Item = Piece> {
        let mut pieces = pieces.map(|index| self.get(index)).peekable();
        std::iter::from_fn(move || {
            let mut piece = pieces.next()?;
            let alike = |next: &Piece| next.matrix == piece.matrix && next.tokens == piece.tokens;
            while let Some(next) = pieces.next_if(alike) {
                piece.panels.end = next.panels.end;
            }
            Some(piece)
        })
    }

    fn blocks(&self) -> usize {
        self.tokens.div_ceil(self.block)
    }

    /// Pieces of a block of tokens.
    fn of_block(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.panels().div_ceil(self.panels_of(matrix))).sum()
    }

    /// Panels of a piece of this matrix.
    fn panels_of(&self, matrix: &PackedMatrix) -> usize {
        let panels = self.cost / self.cost_of_panel(matrix);
        (panels / TOGETHER * TOGETHER).max(TOGETHER)
    }

    fn cost_of_panel(&self, matrix: &PackedMatrix) -> usize {
        let stream = matrix.panel_bytes().saturating_mul(BYTE);
        let compute = (self.block * COLUMNS).saturating_mul(matrix.columns().div_ceil(16));
        stream.max(compute).max(1)
    }
}

#[cfg(test)]
mod tests {
    use minfer_tensor::DType;

    use super::*;

    fn pack(rows: usize, columns: usize) -> PackedMatrix {
        PackedMatrix::pack(DType::Q8_0, rows, columns, &vec![0; rows * columns / 32 * 34]).unwrap()
    }

    #[test]
    fn pieces_cover_every_output_once() {
        let (first, second, third) = (pack(1000, 64), pack(16, 256), pack(33, 1024));
        let matrices = [&first, &second, &third];
        for tokens in [1, 3, 64, 97, 5000] {
            let chunks = Chunks::new(&matrices, tokens);
            let mut seen = matrices.map(|matrix| vec![0; matrix.panels()]);
            for piece in (0..chunks.count()).map(|index| chunks.get(index)) {
                assert!(!piece.panels.is_empty() && !piece.tokens.is_empty());
                for panel in piece.panels {
                    // Each token is met once if the numbers of tokens add up and no piece comes
                    // twice.
                    seen[piece.matrix][panel] += piece.tokens.len();
                }
            }
            assert!(seen.iter().flatten().all(|&seen| seen == tokens), "{tokens} tokens: {seen:?}");
            let whole: Vec<Piece> = chunks.joined(0..chunks.count()).collect();
            assert_eq!(whole.len(), matrices.len() * tokens.div_ceil(chunks.block));
            assert!(whole.iter().all(|piece| piece.panels == (0..matrices[piece.matrix].panels())));
        }
    }

    #[test]
    fn no_tokens_and_no_matrices_make_no_pieces() {
        let matrix = pack(16, 32);
        assert_eq!(Chunks::new(&[&matrix], 0).count(), 0);
        assert_eq!(Chunks::new(&[], 7).count(), 0);
    }

    #[test]
    fn work_is_cut_so_that_workers_end_together() {
        // A product of a decode step whose matrix has few panels.
        let matrix = pack(896, 4864);
        let chunks = Chunks::new(std::slice::from_ref(&&matrix), 1).count();
        assert!(chunks >= 16, "{chunks} pieces");
        // Small matrices are not cut to pieces that cost less than a claim.
        assert!(Chunks::new(&[&pack(64, 64)], 1).count() <= 2);
    }
}
