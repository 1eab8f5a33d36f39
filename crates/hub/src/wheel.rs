//! Reading the members of a wheel (a ZIP archive, PEP 427).

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use crate::digest::CHUNK;
use crate::error::HubError;
use crate::plan::Member;
use crate::requirement::Requirement;
use crate::split;

/// An open wheel.
pub(crate) struct Wheel {
    archive: ZipArchive<BufReader<File>>,
    names: Vec<String>,
    requirement: String,
}

impl Wheel {
    pub(crate) fn open(path: &Path, requirement: &Requirement) -> Result<Self, HubError> {
        let requirement = requirement.to_string();
        let file = File::open(path).map_err(HubError::io(path))?;
        let bad = |error: zip::result::ZipError| HubError::BadWheel {
            requirement: requirement.clone(),
            message: error.to_string(),
        };
        let archive = ZipArchive::new(BufReader::new(file)).map_err(bad)?;
        let names = archive
            .file_names()
            .map(|name| name.map(|name| name.into_owned()))
            .collect::<Result<_, _>>()
            .map_err(bad)?;
        Ok(Self { archive, names, requirement })
    }

    /// The members to take, in order.
    ///
    /// Nothing is ever written under a member's name; one that would leave the archive's folder is
    /// refused all the same, since an honest wheel has none.
    pub(crate) fn choose(&self, member: Member) -> Result<Vec<String>, HubError> {
        let chosen = match member {
            Member::Matching(pattern) => self.matching(pattern)?,
            Member::Model => self.model()?,
        };
        match chosen.iter().find(|name| !is_safe(name)) {
            Some(name) => {
                Err(HubError::UnsafeMember { requirement: self.requirement.clone(), member: name.clone() })
            }
            None => Ok(chosen),
        }
    }

    /// Streams a member into `sink`, never more bytes than the archive declares for it.
    pub(crate) fn read(
        &mut self,
        name: &str,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HubError>,
    ) -> Result<(), HubError> {
        let bad = |message: String| HubError::BadWheel { requirement: self.requirement.clone(), message };
        let mut member = self.archive.by_name(name).map_err(|error| bad(error.to_string()))?;
        let declared = member.size();
        let mut buffer = vec![0; CHUNK];
        let mut done = 0;
        loop {
            let n = member.read(&mut buffer).map_err(|error| bad(format!("{name}: {error}")))?;
            done += n as u64;
            match n {
                _ if done > declared => {
                    return Err(bad(format!("{name} is longer than the {declared} bytes declared")));
                }
                0 if done < declared => {
                    return Err(bad(format!("{name} has {done} bytes and not {declared}")));
                }
                0 => return Ok(()),
                n => sink(&buffer[..n])?,
            }
        }
    }

    fn matching(&self, pattern: &str) -> Result<Vec<String>, HubError> {
        let found: Vec<String> = self.names.iter().filter(|name| matches(pattern, name)).cloned().collect();
        match found.len() {
            0 => Err(self.missing(pattern)),
            1 => Ok(found),
            _ => Err(self.many(found)),
        }
    }

    fn model(&self) -> Result<Vec<String>, HubError> {
        let models: Vec<String> =
            self.names.iter().filter(|name| split::parted(name).is_some()).cloned().collect();
        match models.len() {
            0 => self.parts(),
            1 => Ok(models),
            _ => Err(self.many(models)),
        }
    }

    /// All parts of the one model that is there in parts.
    fn parts(&self) -> Result<Vec<String>, HubError> {
        let mut parts: Vec<(Part<'_>, &String)> =
            self.names.iter().filter_map(|name| Some((Part::of(name)?, name))).collect();
        parts.sort_by(|(a, _), (b, _)| (a.stem, a.number).cmp(&(b.stem, b.number)));
        let names: Vec<String> = parts.iter().map(|(_, name)| (*name).clone()).collect();
        let Some((first, _)) = parts.first() else { return Err(self.missing("*.gguf")) };
        if parts.iter().any(|(part, _)| part.stem != first.stem) {
            return Err(self.many(names));
        }
        let in_a_row = parts.iter().zip(first.number..).all(|((part, _), number)| part.number == number);
        if parts.len() < 2 || first.number > 1 || !in_a_row {
            return Err(HubError::PartsIncomplete { requirement: self.requirement.clone(), members: names });
        }
        Ok(names)
    }

    fn missing(&self, pattern: &str) -> HubError {
        HubError::MemberMissing { requirement: self.requirement.clone(), pattern: pattern.to_owned() }
    }

    fn many(&self, members: Vec<String>) -> HubError {
        HubError::ManyMembers { requirement: self.requirement.clone(), members }
    }
}

/// A member named as a part: `model.gguf.part02` or `part02.bin`.
struct Part<'a> {
    /// What the parts of one model have in common.
    stem: &'a str,
    number: u64,
}

impl<'a> Part<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let file_start = name.rfind('/').map_or(0, |slash| slash + 1);
        let file = &name[file_start..];
        let (stem, digits) = match file.strip_prefix("part").and_then(|rest| rest.strip_suffix(".bin")) {
            Some(digits) => (&name[..file_start], digits),
            None => {
                file.rsplit_once(".part").map(|(stem, digits)| (&name[..file_start + stem.len()], digits))?
            }
        };
        let digits = digits.trim_start_matches(['-', '_']);
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
        Some(Self { stem, number })
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    let starts = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
    starts.into_iter().any(|at| matches(rest, &name[at..]))
}

fn is_safe(name: &str) -> bool {
    !name.starts_with('/') && !name.contains(['\\', ':', '\0']) && name.split('/').all(|word| word != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("*.gguf", "a/b.gguf", true),
            ("*.gguf", "a.gguf.part1", false),
            ("*/data/part*.bin", "p/data/part3.bin", true),
            ("*/data/part*.bin", "p/other/part3.bin", false),
            ("*/data/*.gguf.part*", "p/data/x.gguf.part03", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xb", false),
            ("*", "", true),
            ("é*", "éa", true),
            ("*b", "éb", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn part_names() {
        for (name, want) in [
            ("p/data/part3.bin", Some(("p/data/", 3))),
            ("part-00010.bin", Some(("", 10))),
            ("d/x.gguf.part02", Some(("d/x.gguf", 2))),
            ("d/x.gguf.part", None),
            ("d/partial.bin", None),
            ("d/party.py", None),
            ("apart1.bin", None),
        ] {
            assert_eq!(Part::of(name).map(|part| (part.stem, part.number)), want, "{name}");
        }
    }

    #[test]
    fn unsafe_names() {
        for name in ["../a.gguf", "/a.gguf", "a/../b.gguf", "a\\b.gguf", "c:a.gguf", ".."] {
            assert!(!is_safe(name), "{name}");
        }
        assert!(is_safe("a/b..c/d.gguf"));
    }
}
