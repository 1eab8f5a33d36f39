//! Cases of RoPE, KV stores and attention.

use minfer_graph::{AttentionSpec, F64Bits, KvFormat, KvLayout, Mask, RopePairs, RopeSpec, RopeStoreSpec};

use super::case::{KvForm, Maker, OpCase, Outline};
use super::check::Tolerance;
use super::step::{self, Part};

/// Rotates `2 * pairs` elements of a head.
fn rope_spec(pairs: u32, kind: RopePairs, magnitude: f32) -> RopeSpec {
    let frequency = |pair| F64Bits::from(10_000f64.powf(-f64::from(pair) / f64::from(pairs)));
    RopeSpec { pairs: kind, frequencies: (0..pairs).map(frequency).collect(), magnitude: magnitude.into() }
}

pub(super) fn rope() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for kind in [RopePairs::Adjacent, RopePairs::Halves] {
        for (head_dim, pairs, magnitude) in [(32, 16, 1.0), (64, 12, 1.19), (20, 9, 1.0)] {
            let shape = format!("{kind:?}, 3 heads of {head_dim}, {pairs} pairs, magnitude {magnitude}");
            // Near and far positions: the angle of a far one needs more than f32.
            let parts = vec![vec![Part { cached: 0, tokens: 4 }, Part { cached: 30_000, tokens: 3 }]];
            let tolerance = Tolerance::OfRow(1e-6);
            let types = "F32".to_owned();
            let outline = Outline { op: "rope", types, shape, parts, kv: None, tolerance };
            cases.push(OpCase::new(outline, |maker| {
                let x = maker.operand(3 * head_dim);
                vec![maker.graph.rope(x, &rope_spec(pairs, kind, magnitude), 3, head_dim)]
            }));
        }
    }
    cases
}

/// Every format with every layout.
fn forms() -> impl Iterator<Item = KvForm> {
    let layouts = |format| KvLayout::ALL.map(|layout| KvForm { format, layout });
    KvFormat::ALL.into_iter().flat_map(layouts)
}

/// Formats whose dims share no scale; the others' rows are checked by attention over them.
fn plain_forms() -> impl Iterator<Item = KvForm> {
    forms().filter(|form| !form.format.is_quantised())
}

pub(super) fn kv_store() -> Vec<OpCase> {
    let case = |form: KvForm| {
        let outline = Outline {
            op: "kv_store",
            types: format!("KV {}", form.format),
            shape: format!("{}, 2 heads, K 32, V 16", form.layout),
            parts: step::prefill_and_decode(&[19, 3], 1),
            kv: Some(form),
            tolerance: Tolerance::OfRow(1e-6),
        };
        OpCase::new(outline, |maker| {
            let (k, v) = (maker.operand(64), maker.operand(32));
            maker.graph.kv_store(k, v, 0, 2);
            Vec::new()
        })
    };
    plain_forms().map(case).collect()
}

pub(super) fn rope_store() -> Vec<OpCase> {
    let case = |form: KvForm| {
        let outline = Outline {
            op: "rope_store",
            types: format!("KV {}", form.format),
            shape: format!("{}, 4 heads on 2, K 32, V 16", form.layout),
            parts: step::prefill_and_decode(&[19, 3], 1),
            kv: Some(form),
            tolerance: Tolerance::OfRow(1e-6),
        };
        let rope = rope_spec(12, RopePairs::Halves, 1.1);
        OpCase::new(outline, |maker| {
            let qkv = maker.operand(4 * 32 + 2 * (32 + 16));
            let spec = RopeStoreSpec { layer: 0, heads: 4, kv_heads: 2, k_dim: 32, v_dim: 16, rope };
            vec![maker.graph.rope_store(qkv, spec)]
        })
    };
    plain_forms().map(case).collect()
}

/// Rounding of K and V rows, and where a backend rounds them, of queries and probabilities.
fn tolerance(format: KvFormat) -> Tolerance {
    Tolerance::OfRow(match format {
        KvFormat::F32 => 1e-5,
        KvFormat::F16 => 4e-3,
        KvFormat::BF16 => 5e-2,
        KvFormat::Q8_0 => 5e-2,
        KvFormat::Q4_0 => 0.5,
    })
}

/// What varies between attentions of one KV form.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    heads: u32,
    mask: Mask,
    softcap: Option<f32>,
    sinks: bool,
    lengths: &'static [u32],
}

const PLAIN: Variant =
    Variant { name: "causal", heads: 4, mask: Mask::Causal, softcap: None, sinks: false, lengths: &[70, 20] };

pub(super) fn attention() -> Vec<OpCase> {
    let variants = [
        PLAIN,
        Variant { name: "a window of 9", mask: Mask::Window(9), ..PLAIN },
        Variant { name: "bidirectional", mask: Mask::Bidirectional, ..PLAIN },
        Variant { name: "one query head for each KV head", heads: 2, ..PLAIN },
        Variant { name: "scores capped at 2", softcap: Some(2.0), ..PLAIN },
        Variant { name: "sinks", sinks: true, ..PLAIN },
    ];
    let mut cases: Vec<OpCase> =
        forms().flat_map(|form| variants.map(|variant| attention_case(form, variant))).collect();
    let long = Variant { name: "more than 1024 positions", lengths: &[1090], ..PLAIN };
    let form = KvForm { format: KvFormat::F16, layout: KvLayout::LaneMajor };
    cases.push(attention_case(form, long));
    cases
}

fn attention_case(form: KvForm, variant: Variant) -> OpCase {
    let Variant { name, heads, mask, softcap, sinks, lengths } = variant;
    let (kv_heads, k_dim, v_dim) = (2, 64, 32);
    let outline = Outline {
        op: "attention",
        types: format!("KV {}", form.format),
        shape: format!("{name}, {}, {heads} heads on {kv_heads}, K {k_dim}, V {v_dim}", form.layout),
        parts: step::prefill_and_decode(lengths, 2),
        kv: Some(form),
        tolerance: tolerance(form.format),
    };
    OpCase::new(outline, |maker: &mut Maker<'_>| {
        let q = maker.operand(heads * k_dim);
        let (k, v) = (maker.operand(kv_heads * k_dim), maker.operand(kv_heads * v_dim));
        maker.graph.kv_store(k, v, 0, kv_heads);
        let sinks = sinks.then(|| maker.vector(heads, 0.5));
        let spec = AttentionSpec {
            layer: 0,
            heads,
            kv_heads,
            k_dim,
            v_dim,
            scale: 0.125.into(),
            mask,
            softcap: softcap.map(Into::into),
            sinks,
            rope: None,
        };
        vec![maker.graph.attention(q, spec)]
    })
}
