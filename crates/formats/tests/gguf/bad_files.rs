//! Every crafted bad file is refused with its own message, with bounded memory.

use std::collections::HashSet;

use minfer_formats::gguf::File;

use super::allocations::bytes_of;
use super::table::bad_files;

#[test]
fn each_is_refused_in_words_that_name_the_fault() {
    for case in bad_files() {
        let Err(error) = File::parse(case.bytes) else { panic!("{} was accepted", case.name) };
        let message = error.to_string();
        for words in case.expected {
            assert!(message.contains(words), "{}: {message:?} does not say {words:?}", case.name);
        }
        assert!(!message.contains('\n'), "{}: {message:?} has several lines", case.name);
        assert!(message.len() < 400, "{}: a message of {} bytes", case.name, message.len());
    }
}

#[test]
fn refusing_takes_memory_in_proportion_to_the_file() {
    for case in bad_files() {
        let size = case.bytes.len();
        let (result, requested) = bytes_of(|| File::parse(case.bytes));
        assert!(result.is_err());
        assert!(
            requested <= 4096 + 16 * size,
            "{}: {requested} bytes requested for a file of {size}",
            case.name
        );
    }
}

#[test]
fn there_are_many_and_their_names_differ() {
    let cases = bad_files();
    let names: HashSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 60, "{} cases", cases.len());
}
