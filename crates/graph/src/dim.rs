//! Dimensions: a symbol that is bound per step (tokens, rows, sequences) times a constant.

use std::fmt;

use minfer_tensor::DType;

/// What a dimension counts. Only symbols other than [`One`](Symbol::One) vary from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// A constant.
    One,
    /// Tokens fed in this step.
    Tokens,
    /// Rows of the body's output that the head is asked for.
    Rows,
    /// Sequences that take part in this step.
    Sequences,
}

/// A dimension: a symbol times a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    /// What is counted.
    pub symbol: Symbol,
    /// How many elements each counted thing has.
    pub times: u32,
}

impl Dim {
    /// A dimension of `times` elements in every step.
    pub const fn fixed(times: u32) -> Dim {
        Dim { symbol: Symbol::One, times }
    }

    /// One element for each `symbol`.
    pub const fn each(symbol: Symbol) -> Dim {
        Dim { symbol, times: 1 }
    }

    /// Elements at the given extents.
    pub fn resolve(self, extents: Extents) -> u64 {
        u64::from(self.times) * u64::from(extents.of(self.symbol))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbol = match self.symbol {
            Symbol::One => return write!(formatter, "{}", self.times),
            Symbol::Tokens => "tokens",
            Symbol::Rows => "rows",
            Symbol::Sequences => "sequences",
        };
        if self.times == 1 {
            formatter.write_str(symbol)
        } else {
            write!(formatter, "{symbol}x{}", self.times)
        }
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} [", self.dtype)?;
        for (index, dim) in self.dims.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{dim}")?;
        }
        formatter.write_str("]")
    }
}

/// Values of the symbols: the planned maximum, or those of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Tokens in a step.
    pub tokens: u32,
    /// Rows of the head in one run.
    pub rows: u32,
    /// Sequences in a step.
    pub sequences: u32,
}

impl Extents {
    /// The value of one symbol.
    pub fn of(self, symbol: Symbol) -> u32 {
        match symbol {
            Symbol::One => 1,
            Symbol::Tokens => self.tokens,
            Symbol::Rows => self.rows,
            Symbol::Sequences => self.sequences,
        }
    }
}

/// Type, shape and name of a value. Row-major: the last dimension is contiguous.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first. Values of today's operations have two: rows and the row's
    /// width.
    pub dims: Vec<Dim>,
    /// The name in messages and pictures, for example `blk.0.attn_q`.
    pub name: String,
}

impl TensorDesc {
    /// An f32 matrix of one row of `width` elements for each `symbol`.
    pub fn rows(symbol: Symbol, width: u32, name: impl Into<String>) -> TensorDesc {
        TensorDesc { dtype: DType::F32, dims: vec![Dim::each(symbol), Dim::fixed(width)], name: name.into() }
    }

    /// Elements of the contiguous last dimension.
    pub fn width(&self) -> u32 {
        self.dims.last().map_or(0, |dim| dim.times)
    }

    /// The symbol that counts rows.
    pub fn row_symbol(&self) -> Symbol {
        self.dims.first().map_or(Symbol::One, |dim| dim.symbol)
    }

    /// Elements at the given extents.
    pub fn elements(&self, extents: Extents) -> u64 {
        self.dims.iter().map(|dim| dim.resolve(extents)).product()
    }
}
