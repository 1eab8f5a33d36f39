//! x86-64 lanes.

/// A module with the entry points of one set of features. What is enabled is what is detected:
/// there is one list of both.
macro_rules! features {
    ($module:ident: $simd:ty, [$($feature:tt),+ $(,)?]) => {
        mod $module {
            use super::*;

            /// Whether the processor has every feature.
            #[inline]
            pub(super) fn detected() -> bool {
                $(is_x86_feature_detected!($feature))&&+
            }

            /// Runs a kernel that is compiled for the features.
            #[target_feature($(enable = $feature),+)]
            pub(super) fn run<K: Kernel>(simd: $simd, kernel: K) -> K::Output {
                kernel.run(simd)
            }

            /// As [`run`], as a function of its own.
            #[inline(never)]
            #[target_feature($(enable = $feature),+)]
            pub(super) fn outlined<K: Kernel>(simd: $simd, kernel: K) -> K::Output {
                kernel.run(simd)
            }
        }
    };
}

mod avx2;
mod avx512;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::{Avx512, Avx512Pairs};
