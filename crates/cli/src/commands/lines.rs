//! JSON Lines: answers each line of stdin in order, on all processors and in bounded memory.
//!
//! stdin is read in blocks of whole lines, whatever is there. Stdout is flushed after each block,
//! so that a program that needs an answer before it writes its next line gets one.

use std::io::{Read, Write};
use std::thread::{Builder, scope};

use anyhow::{Context, Result, anyhow, bail};

use super::input;
use crate::output;

/// The most bytes of one line.
const MOST_LINE_BYTES: usize = 16 << 20;
/// The most bytes that are read at once; more than a pipe holds.
const READ_BYTES: usize = 256 << 10;

/// Writes the answer to each line of stdin that is not blank, in order. `answer` appends one, with
/// its line end.
///
/// # Errors
/// The first failure, after the answers to the lines before it.
pub(super) fn answer_each(
    out: &mut dyn Write,
    answer: impl Fn(&str, &mut String) -> Result<()> + Sync,
) -> Result<()> {
    input::note_terminal_input();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut input, mut rest, mut before) = (std::io::stdin(), Vec::new(), 0);
    loop {
        let place = |index: usize| format!("line {} of stdin", before + index + 1);
        let block = next_block(&mut input, &mut rest).with_context(|| place(0))?;
        let lines: Vec<&[u8]> = block.split_inclusive(|&byte| byte == b'\n').collect();
        if lines.is_empty() {
            return Ok(());
        }
        let mut first = 0;
        for (text, failure) in answer_block(&lines, threads, &answer)? {
            out.write_all(text.as_bytes())?;
            if let Some((index, error)) = failure {
                return Err(error.context(place(first + index)));
            }
            first += lines.len().div_ceil(threads);
        }
        out.flush()?;
        before += lines.len();
    }
}

/// Answers up to the first failure, and the index of the line that failed.
type Part = (String, Option<(usize, anyhow::Error)>);

/// Answers the lines in equal parts, one for each thread.
fn answer_block(
    lines: &[&[u8]],
    threads: usize,
    answer: &(impl Fn(&str, &mut String) -> Result<()> + Sync),
) -> Result<Vec<Part>> {
    let mut parts = lines.chunks(lines.len().div_ceil(threads).max(1));
    let first = parts.next().unwrap_or_default();
    scope(|scope| {
        let spawn = |part| Builder::new().spawn_scoped(scope, move || answer_part(part, answer));
        let others = parts.map(spawn).collect::<std::io::Result<Vec<_>>>().map_err(output::no_thread)?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, Part>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok([answer_part(first, answer)].into_iter().chain(others.into_iter().map(join)).collect())
    })
}

fn answer_part(lines: &[&[u8]], answer: &impl Fn(&str, &mut String) -> Result<()>) -> Part {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let answered = input::utf8(line).and_then(|line| match line.trim() {
            "" => Ok(()),
            _ => answer(line.trim_end_matches(['\r', '\n']), &mut text),
        });
        if let Err(error) = answered {
            return (text, Some((index, error)));
        }
    }
    (text, None)
}

/// The whole lines that are there, at least one; the last one may lack its line end. Empty at the
/// end of the input. What follows the last line end stays in `rest`.
fn next_block(input: &mut impl Read, rest: &mut Vec<u8>) -> Result<Vec<u8>> {
    loop {
        let seen = rest.len();
        rest.resize(seen + READ_BYTES, 0);
        let read = input.read(&mut rest[seen..]);
        rest.truncate(seen + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => return Ok(std::mem::take(rest)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(end) = rest[seen..].iter().rposition(|&byte| byte == b'\n') {
            let after = rest.split_off(seen + end + 1);
            return Ok(std::mem::replace(rest, after));
        }
        if rest.len() > MOST_LINE_BYTES {
            bail!("more than {MOST_LINE_BYTES} bytes; longer lines are not read");
        }
    }
}

/// Reads a line as a JSON object.
///
/// # Errors
/// It is none, or not what is wanted; the message names the column.
pub(super) fn object<'l, T: serde::Deserialize<'l>>(line: &'l str, example: &str) -> Result<T> {
    if !line.trim_start().starts_with('{') {
        bail!("not a JSON object, such as {example}");
    }
    serde_json::from_str(line).map_err(|error| {
        let (text, place) = (error.to_string(), format!(" at line 1 column {}", error.column()));
        anyhow!("column {}: {}", error.column(), text.strip_suffix(&place).unwrap_or(&text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its parts one by one, as a pipe does.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn blocks_are_of_whole_lines() {
        let blocks = |pieces: &[&[u8]]| {
            let mut input = Pieces(pieces.iter().map(|piece| piece.to_vec()).collect());
            let mut rest = Vec::new();
            let next = std::iter::from_fn(|| Some(next_block(&mut input, &mut rest).unwrap()));
            let blocks = next.take_while(|block| !block.is_empty());
            blocks.map(|block| String::from_utf8(block).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(blocks(&[b"a\nb\nc", b"d\n", b"\n"]), ["a\nb\n", "cd\n", "\n"]);
        assert_eq!(blocks(&[b"a", b"b", b"c"]), ["abc"]);
        assert_eq!(blocks(&[]), [""; 0]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let pieces = vec![vec![b'x'; READ_BYTES]; MOST_LINE_BYTES / READ_BYTES + 9];
        let mut input = Pieces(pieces);
        assert!(next_block(&mut input, &mut Vec::new()).unwrap_err().to_string().contains("16777216 bytes"));
        assert_eq!(input.0.len(), 8);
    }

    #[test]
    fn answers_keep_their_order_up_to_the_first_failure() {
        let numbers: Vec<String> = (0..10).map(|number| format!("{number}\n")).collect();
        let lines: Vec<&[u8]> = numbers.iter().map(|line| line.as_bytes()).collect();
        let answer = |line: &str, text: &mut String| match line {
            "7" => Err(anyhow!("seven")),
            _ => {
                text.push_str(line);
                Ok(())
            }
        };
        let parts = answer_block(&lines, 3, &answer).unwrap();
        let texts: Vec<&str> = parts.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["0123", "456", "89"]);
        assert!(parts[1].1.as_ref().is_some_and(|(line, _)| *line == 3));
    }
}
