//! What is known of the catalogue's models before they are there.

use minfer::models::Family;
use minfer_hub::find_in_catalog;

/// Why this build does not run a model of the catalogue; `None` where it does.
pub(crate) fn not_run(name: &str) -> Option<String> {
    let entry = find_in_catalog(name)?;
    Family::of(entry.architecture).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_run_have_no_reason_against_them() {
        assert_eq!(not_run("smollm2"), None);
        assert_eq!(not_run("no such name"), None);
    }
}
