//! Any file names in a folder are put together to models, each name in one.
#![no_main]

#[path = "../../crates/hub/src/split/tests/check.rs"]
mod check;
#[allow(dead_code, reason = "the crate's own module, of which the check needs one function")]
#[rustfmt::skip]
#[path = "../../crates/hub/src/split.rs"]
mod split;

use libfuzzer_sys::fuzz_target;
use split::groups;

// Names as a folder could have them, apart by line ends; `#` stands for what a part's name has in
// its middle.
fuzz_target!(|names: &str| {
    let names = names.replace('#', "-00001-of-0000");
    check::check(&names.lines().map(|name| format!("{name}.gguf")).collect());
    check::check(&names.lines().map(str::to_owned).collect());
});
