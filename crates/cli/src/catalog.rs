//! What is known of the catalogue's models before they are there.

use minfer::models::Family;

/// The architecture of each model that can be pulled by name.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("smollm2", "llama"),
    ("qwen2.5-coder:0.5b", "qwen2"),
    ("qwen2.5-coder:1.5b", "qwen2"),
    ("gemma3:270m", "gemma3"),
];

/// Why this build does not run a model of the catalogue; `None` where it does.
pub(crate) fn not_run(name: &str) -> Option<String> {
    let (_, architecture) = ARCHITECTURES.iter().find(|(known, _)| *known == name)?;
    Family::of(architecture).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use minfer_hub::CATALOG;

    use super::*;

    #[test]
    fn every_entry_has_its_architecture() {
        let known: Vec<_> = ARCHITECTURES.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, CATALOG.iter().map(|entry| entry.name).collect::<Vec<_>>());
        assert_eq!(not_run("smollm2"), None);
    }
}
