//! The operations of graphs and their parameters.

use std::fmt;
use std::sync::Arc;

use crate::WeightId;

/// An f32 constant compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct F32Bits(u32);

impl F32Bits {
    /// The number itself.
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl From<f32> for F32Bits {
    fn from(value: f32) -> Self {
        F32Bits(value.to_bits())
    }
}

impl fmt::Debug for F32Bits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

/// An f64 constant compared and hashed by its bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct F64Bits(u64);

impl F64Bits {
    /// The number itself.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for F64Bits {
    fn from(value: f64) -> Self {
        F64Bits(value.to_bits())
    }
}

impl fmt::Debug for F64Bits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

/// An operation. The enum is closed: matches without a wildcard list what a new operation needs.
///
/// Inputs and outputs are values of the graph, all f32 matrices of one row per token (or per output
/// row in the head). A payload is plain data; a weight is an id, never a pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// () -> [tokens, width]. Rows of `table` named by the batch's token ids or positions.
    Embed {
        /// The table, [vocabulary or positions, width].
        table: WeightId,
        /// What names the rows.
        by: EmbedBy,
    },
    /// [n, width] -> [n, width].
    Norm(NormSpec),
    /// [n, columns] -> [n, sum of the parts' rows]. Each part is `x * W^T + bias`; the parts'
    /// outputs lie side by side in a row.
    Linear {
        /// At least one; all have the same columns.
        parts: Vec<LinearPart>,
    },
    /// [tokens, heads * head_dim] -> same. Rotates each head by the token's position.
    Rope {
        /// Angles.
        rope: RopeSpec,
        /// Heads in a row.
        heads: u32,
        /// Elements of a head.
        head_dim: u32,
    },
    /// ([tokens, kv_heads * k_dim], [tokens, kv_heads * v_dim]) -> (). Writes K and V rows into the
    /// batch's cells.
    KvStore {
        /// Whose cache.
        layer: u32,
        /// Heads in a row.
        kv_heads: u32,
        /// Elements of a K head.
        k_dim: u32,
        /// Elements of a V head.
        v_dim: u32,
    },
    /// [tokens, heads * k_dim] -> [tokens, heads * v_dim]. Reads the KV cache through the batch's
    /// block tables.
    Attention(AttentionSpec),
    /// [n, width] -> same.
    Activate(Activation),
    /// (gate [n, width], up [n, width]) -> activation(gate) * up.
    GatedActivate(Activation),
    /// (a, b) -> a + b, same shapes. A repeated source is allowed.
    Add,
    /// (a, b) -> a * b element by element, same shapes. A repeated source is allowed.
    Mul,
    /// x -> x * factor.
    Scale {
        /// The constant factor.
        factor: F32Bits,
    },
    /// x -> cap * tanh(x / cap).
    SoftCap {
        /// The bound.
        cap: F32Bits,
    },
    /// [tokens, width] -> [rows, width]. Rows named by the batch's output rows.
    GatherRows,
    /// [n, width] -> [n, narrower]. Columns `offset..offset + narrower` of the input, without a
    /// copy.
    View {
        /// First column.
        offset: u32,
    },
    /// Fused `Add` then `Norm`: (a, b) -> (a + b, norm(a + b)).
    AddNorm(NormSpec),
    /// Fused rotation of Q and K and store of K and V: (qkv [tokens, (heads + kv_heads) * k_dim +
    /// kv_heads * v_dim]) -> rotated q [tokens, heads * k_dim]. The input row is Q, K, V side by
    /// side, biases already added.
    RopeStore(RopeStoreSpec),
}

impl Op {
    /// The operation's name, for errors, tables and pictures.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::Norm(_) => "norm",
            Op::Linear { .. } => "linear",
            Op::Rope { .. } => "rope",
            Op::KvStore { .. } => "kv_store",
            Op::Attention(_) => "attention",
            Op::Activate(_) => "activate",
            Op::GatedActivate(_) => "gated_activate",
            Op::Add => "add",
            Op::Mul => "mul",
            Op::Scale { .. } => "scale",
            Op::SoftCap { .. } => "soft_cap",
            Op::GatherRows => "gather_rows",
            Op::View { .. } => "view",
            Op::AddNorm(_) => "add_norm",
            Op::RopeStore(_) => "rope_store",
        }
    }

    /// How many operands it takes.
    pub fn operand_count(&self) -> usize {
        match self {
            Op::Embed { .. } => 0,
            Op::Norm(_)
            | Op::Linear { .. }
            | Op::Rope { .. }
            | Op::Attention(_)
            | Op::Activate(_)
            | Op::Scale { .. }
            | Op::SoftCap { .. }
            | Op::GatherRows
            | Op::View { .. }
            | Op::RopeStore(_) => 1,
            Op::KvStore { .. } | Op::GatedActivate(_) | Op::Add | Op::Mul | Op::AddNorm(_) => 2,
        }
    }

    /// How many results it has.
    pub fn result_count(&self) -> usize {
        match self {
            Op::KvStore { .. } => 0,
            Op::AddNorm(_) => 2,
            Op::Embed { .. }
            | Op::Norm(_)
            | Op::Linear { .. }
            | Op::Rope { .. }
            | Op::Attention(_)
            | Op::Activate(_)
            | Op::GatedActivate(_)
            | Op::Add
            | Op::Mul
            | Op::Scale { .. }
            | Op::SoftCap { .. }
            | Op::GatherRows
            | Op::View { .. }
            | Op::RopeStore(_) => 1,
        }
    }

    /// Names of the results of a node called `node`.
    pub fn result_names(&self, node: &str) -> Vec<String> {
        match self {
            Op::AddNorm(_) => vec![format!("{node}.sum"), node.to_owned()],
            _ => vec![node.to_owned(); self.result_count()],
        }
    }

    /// Whether it reads or writes the KV cache.
    pub fn touches_kv(&self) -> bool {
        matches!(self, Op::KvStore { .. } | Op::Attention(_) | Op::RopeStore(_))
    }

    /// Whether result element `i` of a row depends on element `i` of each operand row alone, so
    /// that the result may take the place of an operand that nobody reads any more.
    pub fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Add
                | Op::Mul
                | Op::Scale { .. }
                | Op::SoftCap { .. }
                | Op::Activate(_)
                | Op::GatedActivate(_)
        )
    }

    /// The weights that the payload names, in a fixed order.
    pub fn weights(&self) -> Vec<WeightId> {
        match self {
            Op::Embed { table, .. } => vec![*table],
            Op::Norm(norm) | Op::AddNorm(norm) => norm.weight.into_iter().chain(norm.bias).collect(),
            Op::Linear { parts } => {
                parts.iter().flat_map(|part| [Some(part.weight), part.bias]).flatten().collect()
            }
            Op::Attention(attention) => attention.sinks.into_iter().collect(),
            Op::Rope { .. }
            | Op::KvStore { .. }
            | Op::Activate(_)
            | Op::GatedActivate(_)
            | Op::Add
            | Op::Mul
            | Op::Scale { .. }
            | Op::SoftCap { .. }
            | Op::GatherRows
            | Op::View { .. }
            | Op::RopeStore(_) => Vec::new(),
        }
    }
}

/// What names the rows of an embedding table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbedBy {
    /// A row for each token of the vocabulary.
    Token,
    /// A row for each position in a sequence.
    Position,
}

/// RMSNorm or LayerNorm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// x / sqrt(mean(x^2) + eps). (Zhang and Sennrich, "Root Mean Square Layer Normalization".)
    Rms,
    /// (x - mean(x)) / sqrt(var(x) + eps). (Ba, Kiros and Hinton, "Layer Normalization".)
    Layer,
}

/// A normalisation of each row, or of each of `groups` equal parts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormSpec {
    /// Formula.
    pub kind: NormKind,
    /// Elementwise weight, `[width / groups]` for all groups or `[width]`; absent: 1.
    pub weight: Option<WeightId>,
    /// Elementwise bias, `[width / groups]` for all groups or `[width]`; absent: 0.
    pub bias: Option<WeightId>,
    /// Added under the root.
    pub eps: F32Bits,
    /// Equal parts of a row that are normalised alone: 1 for a row, the head count for a norm per
    /// head.
    pub groups: u32,
}

/// One matrix of a linear operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinearPart {
    /// [rows, columns]; output `r` is the dot of weight row `r` with the input row.
    pub weight: WeightId,
    /// `[rows]`, f32.
    pub bias: Option<WeightId>,
}

/// Which two elements of a head form a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// Elements 2i and 2i + 1.
    Adjacent,
    /// Elements i and i + dims / 2.
    Halves,
}

/// Rotary position embedding (Su et al., "RoFormer"): pair `i` of a head at position `p` turns by
/// `p * frequencies[i]` radians and is scaled by `magnitude`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RopeSpec {
    /// Which elements form a pair.
    pub pairs: RopePairs,
    /// Radians per position for each pair, every scaling method already applied. The rotated
    /// elements of a head are twice as many; the rest of the head passes through.
    pub frequencies: Arc<[F64Bits]>,
    /// Factor on the rotated elements (1 but for YaRN and the like).
    pub magnitude: F32Bits,
}

impl RopeSpec {
    /// Elements of a head that are rotated.
    pub fn rotated_dims(&self) -> u32 {
        2 * self.frequencies.len() as u32
    }
}

/// Which cached positions a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Positions up to its own.
    Causal,
    /// The `n` positions that end with its own.
    Window(u32),
    /// Every position of its sequence.
    Bidirectional,
}

/// Scaled dot-product attention of one layer over its KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionSpec {
    /// Whose cache is read.
    pub layer: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a query or key head.
    pub k_dim: u32,
    /// Elements of a value head.
    pub v_dim: u32,
    /// Factor on q.k.
    pub scale: F32Bits,
    /// Visible positions.
    pub mask: Mask,
    /// cap * tanh(score / cap) on the scaled scores.
    pub softcap: Option<F32Bits>,
    /// One learned logit per head that takes part in the softmax's denominator, `[heads]`.
    pub sinks: Option<WeightId>,
    /// The rotation of the cached K rows, `None` where they are not rotated. For rows that a
    /// removal has moved, queries are turned on by its angles at the row's rope offset, without its
    /// magnitude.
    pub rope: Option<RopeSpec>,
}

/// Rotation of Q and K and store of K and V in one pass over the joint projection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RopeStoreSpec {
    /// Whose cache is written.
    pub layer: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a query or key head.
    pub k_dim: u32,
    /// Elements of a value head.
    pub v_dim: u32,
    /// Angles.
    pub rope: RopeSpec,
}

/// An elementwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x / (1 + exp(-x)).
    Silu,
    /// The tanh form of GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    GeluTanh,
    /// The same with argument and result rounded to f16, x itself from 10 on and 0 up to -10:
    /// llama.cpp's table, which the measurements of models with GELU are made with.
    GeluHalf,
}

impl Activation {
    /// The function's name.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::GeluHalf => "gelu_half",
        }
    }
}
