//! The CPU backend on the operation cases that all backends run, with every instruction set.

use std::sync::Arc;

use minfer_cpu::{CpuBackend, Isa, Pool};
use minfer_testkit::op_cases;

/// What the CPU does not run: types of the case, and the reason.
const REFUSED: [(&str, &str); 1] = [("Q8_0 and F16", "one input is needed both quantised and plain")];

#[test]
fn every_case_is_computed_or_refused_with_its_reason() {
    let pool = Arc::new(Pool::new(2).expect("a pool"));
    for isa in Isa::available() {
        let backend = CpuBackend::new(isa, Arc::clone(&pool));
        for coverage in op_cases::all() {
            let (mut worst, mut values) = (0.0_f64, 0);
            for case in &coverage.cases {
                let refused = REFUSED.iter().find(|(types, _)| *types == case.types);
                match (case.refusal(&backend), refused) {
                    (Some(found), Some((_, reason))) => assert!(found.contains(reason), "{case}: {found}"),
                    (Some(found), None) => panic!("{case} is refused: {found}"),
                    (None, Some(_)) => panic!("{case} is not refused any more"),
                    (None, None) => {
                        let checked =
                            case.check(&backend).unwrap_or_else(|error| panic!("{isa}, {case}: {error}"));
                        worst = worst.max(checked.worst);
                        values += checked.values;
                    }
                }
            }
            println!("{isa}: {}: {values} values, at most {worst:.2} of the tolerance", coverage.op);
        }
    }
}
