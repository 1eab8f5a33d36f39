//! Compares results of a backend with the f64 interpreter.

use minfer_graph::{Backend, BackendError, KvFormat, KvSide, LinearPart, Op, ValueId, WeightId};
use minfer_tensor::DType;
use minfer_tensor::blocks::decode_row;

use super::case::{OpCase, StepResult, StoredRow};
use crate::interpreter::{Matrix, ReferenceKv, interpret_values};

/// How far a result may be from the exact one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tolerance {
    /// This share of the largest element of the exact row.
    OfRow(f64),
    /// What follows from the arithmetic of products. Where weights are quantised, a backend may
    /// quantise activations to 8 bits for each 32 columns, rounded to nearest: an element is then
    /// off by at most 1/254 of the largest of its 32. Sums of `n` products in f32 are off by at
    /// most `n` x 2^-24 of the sum of magnitudes.
    Product,
}

/// Why a case failed.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The backend refused or failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A value is too far from the exact one.
    #[error("step {step}, {what}, element {element}: {found}, expected {expected} within {allowed:.2e}")]
    Wrong {
        /// The step.
        step: usize,
        /// The output, or the stored row.
        what: String,
        /// Its element.
        element: usize,
        /// What the backend computed.
        found: f64,
        /// The exact value.
        expected: f64,
        /// The allowed distance.
        allowed: f64,
    },
}

/// A case that passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    /// Values compared.
    pub values: usize,
    /// The largest distance as a share of the allowed one.
    pub worst: f64,
}

impl OpCase {
    /// Runs the case and compares every output and every stored row with the interpreter.
    ///
    /// # Errors
    /// The backend refused or failed, or a value is too far from the exact one.
    pub fn check(&self, backend: &dyn Backend) -> Result<Checked, CaseError> {
        let results = self.results(backend)?;
        let decoded: Vec<Vec<f32>> = self.weights.iter().map(|tensor| tensor.values()).collect();
        let weights = |id: WeightId| decoded[id.0 as usize].clone();
        let mut kv = ReferenceKv::exact(&self.kv);
        let mut checked = Checked { values: 0, worst: 0.0 };
        for (index, (step, result)) in self.steps.iter().zip(&results).enumerate() {
            let exact = step.with(self.kv.groups.len(), |batch| {
                interpret_values(&self.model_graph, self.graph(), &weights, batch, &mut kv, &[])
            });
            self.check_outputs(index, result, &exact, &decoded, &mut checked)?;
            self.check_stored(index, result, &kv, &mut checked)?;
        }
        Ok(checked)
    }

    fn check_outputs(
        &self,
        step: usize,
        result: &StepResult,
        exact: &[Option<Matrix>],
        decoded: &[Vec<f32>],
        checked: &mut Checked,
    ) -> Result<(), CaseError> {
        let value = |id: ValueId| exact[id.0 as usize].as_ref().expect("a verified graph defines its values");
        for (&id, found) in self.graph().outputs.iter().zip(&result.outputs) {
            let what = self.graph().value(id).name.clone();
            let expected = value(id);
            let allowed = match (self.tolerance, self.op()) {
                (Tolerance::Product, Op::Linear { parts }) => {
                    product_bound(parts, value(self.node().inputs[0]), decoded, self)
                }
                (Tolerance::Product, _) => panic!("{self}: only products have such a tolerance"),
                (Tolerance::OfRow(share), _) => of_rows(expected, share),
            };
            compare(step, &what, found, expected, &allowed, checked)?;
        }
        Ok(())
    }

    /// Rows of formats without shared scales, decoded, against the exact ones.
    fn check_stored(
        &self,
        step: usize,
        result: &StepResult,
        kv: &ReferenceKv,
        checked: &mut Checked,
    ) -> Result<(), CaseError> {
        for StoredRow { layer, cell, side, bytes } in &result.stored {
            let group = &self.kv.groups[self.kv.locate(*layer).expect("the layer stores rows").0];
            let (format, index) = match side {
                KvSide::K => (group.k_format, 0),
                KvSide::V => (group.v_format, 1),
            };
            let Some((dtype, rounding)) = stored_as(format) else { continue };
            let exact = &kv.cell(*layer, *cell).expect("the interpreter stored the cell")[index];
            let expected = Matrix { width: exact.len(), data: exact.clone() };
            let mut found = vec![0.0; exact.len()];
            decode_row(dtype, bytes, &mut found).expect("canonical rows are whole");
            let rotation = of_rows(&expected, 1e-6);
            let allowed: Vec<f64> =
                exact.iter().zip(rotation).map(|(x, error)| x.abs() * rounding + error).collect();
            compare(step, &format!("{side:?} of cell {cell}"), &found, &expected, &allowed, checked)?;
        }
        Ok(())
    }
}

/// The element type of a stored row and the relative error of its rounding; `None` where dims share
/// a scale.
fn stored_as(format: KvFormat) -> Option<(DType, f64)> {
    match format {
        KvFormat::F32 => Some((DType::F32, 0.0)),
        KvFormat::F16 => Some((DType::F16, 2f64.powi(-11))),
        KvFormat::BF16 => Some((DType::BF16, 2f64.powi(-8))),
        KvFormat::Q8_0 | KvFormat::Q4_0 => None,
    }
}

fn of_rows(exact: &Matrix, share: f64) -> Vec<f64> {
    let bound = |row: &[f64]| vec![share * largest(row); row.len()];
    exact.rows().flat_map(bound).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()))
}

/// [`Tolerance::Product`] for every output element.
fn product_bound(parts: &[LinearPart], x: &Matrix, decoded: &[Vec<f32>], case: &OpCase) -> Vec<f64> {
    let mut bounds = Vec::new();
    for row in x.rows() {
        for part in parts {
            let quantised = case.weights[part.weight.0 as usize].dtype.is_quantised();
            let off = |block: &[f64]| if quantised { largest(block) / 254.0 } else { 0.0 };
            let errors: Vec<f64> = row.chunks(32).flat_map(|block| vec![off(block); block.len()]).collect();
            let sums = row.len() as f64 * 2f64.powi(-24);
            let bias = part.bias.map(|id| &decoded[id.0 as usize]);
            for (index, weights) in decoded[part.weight.0 as usize].chunks_exact(row.len()).enumerate() {
                let terms = weights.iter().zip(row).zip(&errors);
                let bound: f64 = terms
                    .map(|((weight, x), error)| f64::from(weight.abs()) * (error * 1.001 + x.abs() * sums))
                    .sum();
                bounds.push(bound + bias.map_or(0.0, |bias| f64::from(bias[index].abs()) * sums));
            }
        }
    }
    bounds
}

fn compare(
    step: usize,
    what: &str,
    found: &[f32],
    expected: &Matrix,
    allowed: &[f64],
    checked: &mut Checked,
) -> Result<(), CaseError> {
    assert_eq!(found.len(), expected.data.len(), "{what}: elements");
    for (element, (found, expected)) in found.iter().zip(&expected.data).enumerate() {
        let (found, expected, allowed) = (f64::from(*found), *expected, allowed[element]);
        let distance = (found - expected).abs();
        if distance.is_nan() || distance > allowed {
            return Err(CaseError::Wrong { step, what: what.to_owned(), element, found, expected, allowed });
        }
        checked.values += 1;
        if distance > 0.0 {
            checked.worst = checked.worst.max(distance / allowed);
        }
    }
    Ok(())
}
