//! Answering stdin line by line, on all processors and in constant memory.

use std::io::{BufRead, Write};

use anyhow::{Context, Error, Result};

use super::input;

/// Lines that are answered together.
const BATCH_LINES: usize = 8192;
/// The bytes of lines after which no more are answered together.
const BATCH_BYTES: usize = 1 << 20;

/// What became of a part of a batch: the answers up to the first failure, and the failure.
type Part = (String, Option<Error>);

/// Writes the answer to each line of stdin that is not blank, in order. `answer` appends one, with its line end.
///
/// # Errors
/// The first failure, after the answers to the lines before it.
pub(super) fn answer_each(
    out: &mut dyn Write,
    answer: impl Fn(&str, &mut String) -> Result<()> + Sync,
) -> Result<()> {
    input::say_that_stdin_is_read();
    let mut stdin = std::io::stdin().lock();
    let mut done = 0;
    loop {
        let (batch, failure) = read_batch(&mut stdin, done);
        done += batch.len();
        for (text, failure) in answer_batch(done - batch.len(), &batch, &answer) {
            out.write_all(text.as_bytes())?;
            failure.map_or(Ok(()), Err)?;
        }
        failure.map_or(Ok(()), Err)?;
        if batch.is_empty() {
            return Ok(());
        }
    }
}

/// The next lines, and why there are not more if that is a failure. `done` lines were read before.
fn read_batch(stdin: &mut impl BufRead, done: usize) -> (Vec<String>, Option<Error>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
        let mut line = String::new();
        let read = stdin.read_line(&mut line);
        match read.with_context(|| format!("line {} of stdin", done + batch.len() + 1)) {
            Ok(0) => break,
            Ok(count) => bytes += count,
            Err(error) => return (batch, Some(error)),
        }
        batch.push(line);
    }
    (batch, None)
}

/// One part for each processor, in order.
fn answer_batch(
    before: usize,
    batch: &[String],
    answer: &(impl Fn(&str, &mut String) -> Result<()> + Sync),
) -> Vec<Part> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let size = batch.len().div_ceil(threads).max(64);
    std::thread::scope(|scope| {
        let part = |(index, lines)| scope.spawn(move || answer_part(before + index * size, lines, answer));
        let parts: Vec<_> = batch.chunks(size).enumerate().map(part).collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, Part>| match part.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        parts.into_iter().map(join).collect()
    })
}

fn answer_part(
    before: usize,
    lines: &[String],
    answer: &(impl Fn(&str, &mut String) -> Result<()> + Sync),
) -> Part {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let answered = answer(line, &mut text);
        if let Err(error) = answered.with_context(|| format!("line {} of stdin", before + index + 1)) {
            return (text, Some(error));
        }
    }
    (text, None)
}
