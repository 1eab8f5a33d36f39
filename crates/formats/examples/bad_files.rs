//! Writes the crafted bad GGUF files of the tests to a folder: `bad_files DIR`.
//!
//! Prints one line per file: its name, and the words that its refusal must contain, separated by
//! tabs.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/gguf/raw.rs"]
mod raw;
#[path = "../tests/gguf/table.rs"]
mod table;

use std::path::PathBuf;
use std::{env, fs, io, process};

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        eprintln!("usage: bad_files DIR");
        process::exit(2);
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    for case in table::bad_files() {
        let name = format!("{}.gguf", case.name);
        fs::write(folder.join(&name), &case.bytes)?;
        println!("{name}\t{}", case.expected.join("\t"));
    }
    Ok(())
}
