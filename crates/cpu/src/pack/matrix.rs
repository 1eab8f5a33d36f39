//! A packed matrix, and how it is made.

use std::ops::Range;

use minfer_tensor::{DType, DTypeError};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{Codebook, Format, Plain, Run, with_format};
use crate::arch::{Isa, Kernel, LANES, Simd};
use crate::memory::{Mapping, MemoryError, Region};
use crate::quantise::BLOCK;

/// Why a matrix could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Whole numbers are no weights.
    #[error("{0} is not a type of weights")]
    Type(DType),
    /// The rows cannot hold this type.
    #[error(transparent)]
    Layout(#[from] DTypeError),
    /// The bytes are not those of the matrix.
    #[error("{rows} x {columns} elements of {dtype} take {wanted} bytes, not {found}")]
    Size {
        /// Type of the elements.
        dtype: DType,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Bytes that the rows to be packed take.
        wanted: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The matrix is larger than the address space.
    #[error("{rows} x {columns} elements do not fit in memory")]
    TooLarge {
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
    },
    /// The system refused memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The memory that was to hold the matrix is used up.
    #[error("the memory of the weights has no {bytes} bytes left")]
    MemoryFull {
        /// Bytes that the matrix takes.
        bytes: usize,
    },
}

/// What a matrix holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    dtype: DType,
    rows: usize,
    columns: usize,
    /// Bytes of a row in the file.
    row_bytes: usize,
    /// Bytes of a panel.
    panel_bytes: usize,
}

impl Shape {
    fn new(dtype: DType, rows: usize, columns: usize) -> Result<Shape, PackError> {
        let too_large = || PackError::TooLarge { rows, columns };
        let row_bytes = usize::try_from(dtype.row_bytes(columns as u64)?).map_err(|_| too_large())?;
        let block = with_format!(
            dtype,
            F => size_of::<<F as Format>::Block>(),
            P => size_of::<<P as Plain>::Column>(),
            _ => return Err(PackError::Type(dtype))
        );
        let panel_bytes = (columns / dtype.block_len()).checked_mul(block).ok_or_else(too_large)?;
        let shape = Shape { dtype, rows, columns, row_bytes, panel_bytes };
        // Every other size is at most as large as this one.
        shape.panels().checked_mul(panel_bytes).filter(|&n| n < isize::MAX as usize).ok_or_else(too_large)?;
        Ok(shape)
    }

    fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    /// Where the rows of some panels lie in the bytes of the whole matrix as the file stores it.
    fn stored(&self, panels: Range<usize>) -> Range<usize> {
        let Shape { rows, row_bytes, .. } = *self;
        rows.min(panels.start * LANES) * row_bytes..rows.min(panels.end * LANES) * row_bytes
    }
}

/// A matrix of weights, `rows` outputs by `columns` inputs.
#[derive(Debug)]
pub(crate) struct PackedMatrix {
    shape: Shape,
    memory: Region,
}

impl PackedMatrix {
    /// Packs the bytes of a matrix as the file stores it, row after row.
    ///
    /// # Errors
    /// A type or a shape that cannot be packed, bytes of another size, no memory.
    #[cfg(test)]
    pub(crate) fn pack(dtype: DType, rows: usize, columns: usize, bytes: &[u8]) -> Result<Self, PackError> {
        let mut memory = Mapping::new(Self::footprint(dtype, rows, columns)?)?;
        let mut matrix = Self::allocate(&mut memory, dtype, rows, columns)?;
        let panels = matrix.panels().max(1);
        for mut part in matrix.parts(panels) {
            part.pack(bytes)?;
        }
        Ok(matrix)
    }

    /// Bytes of weight memory that a matrix takes.
    ///
    /// # Errors
    /// A type or a shape that cannot be packed.
    pub(crate) fn footprint(dtype: DType, rows: usize, columns: usize) -> Result<usize, PackError> {
        Ok(Mapping::footprint(Shape::new(dtype, rows, columns)?.bytes()))
    }

    /// A matrix of zeros, to be filled by its [`parts`](PackedMatrix::parts).
    ///
    /// # Errors
    /// A type or a shape that cannot be packed, or a memory with too little left.
    pub(crate) fn allocate(
        memory: &mut Mapping,
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Result<Self, PackError> {
        let shape = Shape::new(dtype, rows, columns)?;
        let bytes = shape.bytes();
        let memory = memory.take(bytes).ok_or(PackError::MemoryFull { bytes })?;
        Ok(PackedMatrix { shape, memory })
    }

    /// Bytes of the rows of a full panel in the file.
    pub(crate) fn stored_bytes_of_panel(&self) -> usize {
        self.shape.stored(0..1).len()
    }

    /// The matrix in parts of some panels, to be filled; several workers may fill parts at once.
    pub(crate) fn parts(&mut self, panels: usize) -> impl Iterator<Item = UnpackedPanels<'_>> {
        let (shape, count) = (self.shape, self.shape.panels());
        let mut rest: &mut [u8] = &mut self.memory;
        (0..count).step_by(panels).map(move |first| {
            let panels = first..count.min(first + panels);
            let memory =
                rest.split_off_mut(..panels.len() * shape.panel_bytes).expect("panels fill the memory");
            UnpackedPanels { shape, panels, memory }
        })
    }

    /// All panels.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.shape.dtype
    }

    /// What its weights stand for, if its type has a codebook.
    pub(crate) fn codebook(&self) -> &'static Codebook {
        with_format!(
            self.dtype(),
            F => const { &<F as Format>::CODEBOOK },
            P => { let _: std::marker::PhantomData<P>; const { &Codebook::NONE } },
            _ => const { &Codebook::NONE }
        )
    }

    /// Output rows.
    pub(crate) fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Columns of a row.
    pub(crate) fn columns(&self) -> usize {
        self.shape.columns
    }

    /// Panels of 16 rows, the last of which may have fewer.
    pub(crate) fn panels(&self) -> usize {
        self.shape.panels()
    }

    /// Bytes of a panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.shape.panel_bytes
    }

    /// Bytes of memory that the weights take.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.memory.len()
    }

    /// The blocks (or columns) of a panel; `B` is what the matrix's type packs to.
    #[inline(always)]
    pub(crate) fn panel<B: FromBytes + Immutable + KnownLayout>(&self, panel: usize) -> &[B] {
        let size = self.shape.panel_bytes;
        let bytes = &self.memory[panel * size..(panel + 1) * size];
        <[B]>::ref_from_bytes(bytes).expect("regions are aligned, and panels are whole blocks")
    }

    /// The values of one row, exactly as `minfer_tensor::blocks` decodes them.
    ///
    /// # Panics
    /// No such row, or `out` is not as long as a row.
    pub(crate) fn gather_row(&self, isa: Isa, row: usize, out: &mut [f32]) {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        assert_eq!(out.len(), self.columns(), "length of a row");
        isa.run(Gather { matrix: self, row, out });
    }
}

/// Some panels of a matrix that was just allocated.
pub(crate) struct UnpackedPanels<'a> {
    shape: Shape,
    panels: Range<usize>,
    memory: &'a mut [u8],
}

impl UnpackedPanels<'_> {
    /// Panels in the part.
    pub(crate) fn count(&self) -> usize {
        self.panels.len()
    }

    /// Where the rows of the panels lie in the bytes of the whole matrix as the file stores it.
    pub(crate) fn stored(&self) -> Range<usize> {
        self.shape.stored(self.panels.clone())
    }

    /// Packs the panels out of the bytes of their rows.
    ///
    /// # Errors
    /// The bytes are not those of the rows.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        let Shape { dtype, rows, columns, row_bytes, panel_bytes } = self.shape;
        let stored = self.stored();
        if bytes.len() != stored.len() {
            return Err(PackError::Size { dtype, rows, columns, wanted: stored.len(), found: bytes.len() });
        }
        if panel_bytes == 0 || row_bytes == 0 {
            return Ok(());
        }
        for (panel, target) in self.panels.clone().zip(self.memory.chunks_exact_mut(panel_bytes)) {
            let source = self.shape.stored(panel..panel + 1);
            let source = &bytes[source.start - stored.start..source.end - stored.start];
            with_format!(
                dtype,
                F => pack_blocks::<F>(source, row_bytes, target),
                P => pack_columns::<P>(source, row_bytes, target),
                _ => unreachable!("shapes of other types are refused")
            );
        }
        Ok(())
    }
}

/// Packs a panel of blocks from up to 16 rows.
fn pack_blocks<F: Format>(source: &[u8], row_bytes: usize, target: &mut [u8]) {
    let zeros = F::ZERO;
    let rows: [Option<&[F::File]>; LANES] = lanes(source, row_bytes);
    let blocks = <[F::Block]>::mut_from_bytes(target).expect("panels are whole blocks");
    for (index, block) in blocks.iter_mut().enumerate() {
        F::pack(&rows.map(|row| row.map_or(&zeros, |row| &row[index])), block);
    }
}

/// Packs a panel of columns from up to 16 rows.
fn pack_columns<P: Plain>(source: &[u8], row_bytes: usize, target: &mut [u8]) {
    let rows: [Option<&[P::File]>; LANES] = lanes(source, row_bytes);
    let columns = <[P::Column]>::mut_from_bytes(target).expect("panels are whole columns");
    for (index, column) in columns.iter_mut().enumerate() {
        for (lane, row) in rows.iter().enumerate() {
            P::put(column, lane, row.map_or(P::ZERO, |row| row[index]));
        }
    }
}

/// The rows of a panel as elements of the file; none where the panel has fewer than 16.
fn lanes<T: FromBytes + Immutable + KnownLayout>(source: &[u8], row_bytes: usize) -> [Option<&[T]>; LANES] {
    let mut rows = source.chunks_exact(row_bytes);
    std::array::from_fn(|_| {
        let row = rows.next()?;
        Some(<[T]>::ref_from_bytes(row).unwrap_or_else(|_| panic!("rows are whole blocks of bytes")))
    })
}

struct Gather<'a> {
    matrix: &'a PackedMatrix,
    row: usize,
    out: &'a mut [f32],
}

impl Kernel for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_format!(
            self.matrix.dtype(),
            F => self.blocks::<S, <F as Format>::Kernels>(simd),
            P => self.columns::<S, P>(simd),
            _ => unreachable!("shapes of other types are refused")
        );
    }
}

impl Gather<'_> {
    #[inline(always)]
    fn blocks<S: Simd, F: Format>(self, simd: S) {
        let blocks: &[F::Block] = self.matrix.panel(self.row / LANES);
        let (mut taken, codebook) = (Run::ZERO, self.matrix.codebook());
        for (index, out) in self.out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            taken.fill::<S, F>(simd, codebook, &blocks[index / F::RUNS], index % F::RUNS);
            taken.row::<F>(self.row % LANES, out);
        }
    }

    #[inline(always)]
    fn columns<S: Simd, P: Plain>(self, simd: S) {
        let columns: &[P::Column] = self.matrix.panel(self.row / LANES);
        let mut values = [0.0; LANES];
        for (value, column) in self.out.iter_mut().zip(columns) {
            simd.store(P::load(simd, column), &mut values);
            *value = values[self.row % LANES];
        }
    }
}
