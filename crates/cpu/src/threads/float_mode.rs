//! The processor's floating-point mode while kernels run.
//!
//! A host program may have set flush-to-zero, denormals-are-zero or another rounding (audio
//! software does, and so does code that is linked with `-ffast-math`). New threads inherit that
//! mode. Kernels give the same bits on every machine only in the default mode, so each worker sets
//! it for the length of a job.

use std::marker::PhantomData;

/// The default mode, on this thread, until the value is dropped: round to nearest even, keep
/// denormals, mask exceptions.
#[must_use]
pub(crate) struct DefaultFloatMode {
    /// The mode to restore; `None` where it was the default one.
    saved: Option<Control>,
    /// The mode belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl DefaultFloatMode {
    /// Sets the default mode.
    #[inline]
    pub(crate) fn set() -> DefaultFloatMode {
        let found = read();
        let saved = (found & CONTROL_BITS != DEFAULT).then_some(found);
        if saved.is_some() {
            write(DEFAULT);
        }
        DefaultFloatMode { saved, not_send: PhantomData }
    }
}

impl Drop for DefaultFloatMode {
    #[inline]
    fn drop(&mut self) {
        if let Some(saved) = self.saved {
            write(saved);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod register {
    //! MXCSR (Intel SDM, volume 1, 10.2.3).

    pub(super) type Control = u32;
    /// All but the sticky exception flags.
    pub(super) const CONTROL_BITS: Control = 0xffc0;
    /// Every exception masked, everything else off.
    pub(super) const DEFAULT: Control = 0x1f80;

    #[inline]
    pub(super) fn read() -> Control {
        let mut value: Control = 0;
        // SAFETY: the instruction stores four bytes to `value`.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
        value
    }

    // Not inlined, so that no arithmetic of the caller moves across it.
    #[inline(never)]
    pub(super) fn write(value: Control) {
        // SAFETY: the instruction loads four bytes of `value`, which `read` gave or which is the
        // default: reserved bits are zero. Only code between `set` and `drop` runs in the changed
        // mode, and that mode is the one that Rust expects.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags))
        };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod register {
    //! FPCR (Arm ARM, C5.2.8).

    pub(super) type Control = u64;
    /// AHP, DN, FZ, RMode, FZ16 and the trap enables.
    pub(super) const CONTROL_BITS: Control = 0x07f8_9f00;
    /// Everything off.
    pub(super) const DEFAULT: Control = 0;

    #[inline]
    pub(super) fn read() -> Control {
        let value: Control;
        // SAFETY: reading the register touches no memory.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }

    // Not inlined, so that no arithmetic of the caller moves across it.
    #[inline(never)]
    pub(super) fn write(value: Control) {
        // SAFETY: `value` is what `read` gave or the default mode, which is the one that Rust
        // expects.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod register {
    //! No mode that can be changed.

    pub(super) type Control = u32;
    pub(super) const CONTROL_BITS: Control = 0;
    pub(super) const DEFAULT: Control = 0;

    pub(super) fn read() -> Control {
        DEFAULT
    }

    pub(super) fn write(_: Control) {}
}

use register::{CONTROL_BITS, Control, DEFAULT, read, write};

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use std::hint::black_box;
    use std::sync::Mutex;

    use super::*;
    use crate::Pool;

    /// Flush-to-zero, denormals-are-zero, round towards zero.
    const HOST: Control = DEFAULT | 0x8000 | 0x0040 | 0x6000;

    fn smallest_halved() -> f32 {
        black_box(f32::MIN_POSITIVE) * black_box(0.5)
    }

    #[test]
    fn a_hosts_mode_does_not_reach_a_job_and_comes_back() {
        write(HOST);
        // Its threads inherit the mode.
        let pool = Pool::new(3).expect("threads");
        assert_eq!(smallest_halved(), 0.0, "the host flushes");
        let results = Mutex::new(Vec::new());
        pool.run(&|_, _| {
            let third = black_box(2.0f32) / black_box(3.0);
            results.lock().unwrap().push((smallest_halved().to_bits(), third.to_bits()));
        });
        let after = read() & CONTROL_BITS;
        write(DEFAULT);
        assert_eq!(after, HOST, "the host's mode is back");
        let expected = (0.5f64 * f64::from(f32::MIN_POSITIVE)) as f32;
        assert_eq!(results.into_inner().unwrap(), [(expected.to_bits(), 0x3f2a_aaab); 3]);
    }
}
