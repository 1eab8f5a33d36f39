//! Operation cases: one list of operations, operand types and shapes that every backend runs.
//!
//! A case is a graph around one operation, the stored bytes of its weights, and the steps to run.
//! The expected values come from the f64 [`interpreter`](crate::interpreter) on decoded weights. A
//! backend is used through the [`Backend`](minfer_graph::Backend) trait only.

mod attention;
mod case;
mod check;
mod elementwise;
mod linear;
mod norm;
mod rows;
mod step;

use minfer_graph::Op;

pub use case::OpCase;
pub use check::{CaseError, Checked};

/// What tests one operation.
pub struct OpCoverage {
    /// The operation's name.
    pub op: &'static str,
    /// Its cases, empty where it is excused.
    pub cases: Vec<OpCase>,
    /// Why it has no cases.
    pub excuse: Option<&'static str>,
}

/// From one table: the list of cases, and a `match` over every [`Op`]. An operation that is missing
/// in the table does not compile.
macro_rules! coverage {
    ($($op:ident => $covered:expr,)*) => {
        /// Every operation with its cases, in declaration order.
        pub fn all() -> Vec<OpCoverage> {
            vec![$($covered.of(stringify!($op)),)*]
        }

        /// The name under which an operation stands in [`all`].
        pub fn listed_as(op: &Op) -> &'static str {
            match op {
                $(Op::$op { .. } => stringify!($op),)*
            }
        }
    };
}

coverage! {
    Embed => Covered::By(rows::embed()),
    Norm => Covered::By(norm::norm()),
    Linear => Covered::By(linear::linear()),
    Rope => Covered::By(attention::rope()),
    KvStore => Covered::By(attention::kv_store()),
    Attention => Covered::By(attention::attention()),
    Activate => Covered::By(elementwise::activate()),
    GatedActivate => Covered::By(elementwise::gated_activate()),
    Add => Covered::By(elementwise::add()),
    Mul => Covered::By(elementwise::mul()),
    Scale => Covered::By(elementwise::scale()),
    SoftCap => Covered::By(elementwise::soft_cap()),
    GatherRows => Covered::By(rows::gather_rows()),
    View => Covered::By(rows::view()),
    AddNorm => Covered::By(norm::add_norm()),
    RopeStore => Covered::By(attention::rope_store()),
}

/// How an operation is tested.
enum Covered {
    /// By these cases.
    By(Vec<OpCase>),
    /// By none, for this reason.
    #[allow(dead_code, reason = "no operation is excused today")]
    Excused(&'static str),
}

impl Covered {
    fn of(self, op: &'static str) -> OpCoverage {
        match self {
            Covered::By(cases) => OpCoverage { op, cases, excuse: None },
            Covered::Excused(reason) => OpCoverage { op, cases: Vec::new(), excuse: Some(reason) },
        }
    }
}

#[cfg(test)]
mod tests {
    use minfer_graph::NullBackend;

    use super::*;

    #[test]
    fn every_operation_has_cases_of_its_own_or_an_excuse() {
        for OpCoverage { op, cases, excuse } in all() {
            assert_eq!(cases.is_empty(), excuse.is_some(), "{op}");
            for case in cases {
                assert_eq!(listed_as(case.op()), op, "{case}");
            }
        }
    }

    #[test]
    fn names_of_cases_are_unique() {
        let cases = all().into_iter().flat_map(|coverage| coverage.cases);
        let mut names: Vec<String> = cases.map(|case| case.to_string()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// The null backend computes nothing, but it checks batches, block tables and cells.
    #[test]
    fn the_null_backend_runs_every_case() {
        for case in all().into_iter().flat_map(|coverage| coverage.cases) {
            let backend = NullBackend::new();
            assert_eq!(case.refusal(&backend), None, "{case}");
            case.run(&backend).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(backend.stats().compiles, 1, "{case}");
            assert!(backend.stats().tokens + backend.stats().rows > 0, "{case}");
        }
    }

    #[test]
    fn a_backend_that_computes_nothing_is_seen() {
        for case in all().into_iter().flat_map(|coverage| coverage.cases) {
            assert!(case.check(&NullBackend::new()).is_err(), "{case} passes without being computed");
        }
    }
}
