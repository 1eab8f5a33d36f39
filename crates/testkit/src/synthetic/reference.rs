//! Log-probabilities recorded with llama.cpp.

use serde_json::Value;

use super::Family;

/// What another engine computed from a family's file, with f32 weights and an f32 KV cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The digest of the file, in hex.
    pub sha256: String,
    /// Which engine it was.
    pub engine: String,
    /// The sequence, fed from an empty cache.
    pub tokens: Vec<u32>,
    /// Where the distribution of the next token was recorded.
    pub positions: Vec<u32>,
    /// For each of `positions` the natural logarithm of every token's probability, five decimals.
    pub logprobs: Vec<Vec<f32>>,
}

/// The record of a family.
pub fn reference(family: Family) -> Reference {
    let record: Value = serde_json::from_str(family.record()).expect("records are JSON");
    assert_eq!(record["family"], family.name(), "a record of another family");
    Reference {
        sha256: string(&record["sha256"]),
        engine: string(&record["reference"]),
        tokens: list(&record["tokens"], id),
        positions: list(&record["positions"], id),
        logprobs: list(&record["logprobs"], |row| list(row, logprob)),
    }
}

fn string(value: &Value) -> String {
    value.as_str().expect("records hold text here").to_owned()
}

fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("records hold a list here").iter().map(each).collect()
}

fn id(value: &Value) -> u32 {
    value.as_u64().and_then(|number| number.try_into().ok()).expect("records hold 32-bit numbers here")
}

fn logprob(value: &Value) -> f32 {
    value.as_f64().expect("records hold a number here") as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_distributions() {
        for &family in Family::ALL {
            let record = reference(family);
            assert_eq!(record.positions.len(), record.logprobs.len());
            for row in &record.logprobs {
                let sum: f64 = row.iter().map(|&logprob| f64::from(logprob).exp()).sum();
                assert!((sum - 1.0).abs() < 1e-4, "{}: probabilities add up to {sum}", family.name());
            }
        }
    }
}
