//! Answering stdin line by line, on all processors and in bounded memory, as soon as the lines are there.
//!
//! A thread reads what is at hand and cuts it into blocks of whole lines. A fixed set of threads answers blocks, and
//! the caller's thread writes the answers in order; when it has caught up it flushes, so that a program that waits for
//! an answer before it writes its next line gets one. Each block takes a channel for its answer with it; the queue of
//! those is short, which bounds what is in memory.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use anyhow::{Error, Result, anyhow};

use super::input;
use crate::json::Fault;
use crate::output;

/// The most bytes of one line.
const MOST_LINE_BYTES: usize = 16 << 20;
/// The most bytes that are read at once; more than a pipe holds.
const READ_BYTES: usize = 128 << 10;
/// Blocks that wait for an answer or for being written, for each processor.
const BLOCKS: usize = 4;

/// What became of a block: the answers up to the first failure, and the failure.
type Part = (String, Option<Error>);

/// Some whole lines of stdin, and why there are no more if that is a failure.
struct Block {
    /// How many lines were before.
    before: usize,
    lines: Vec<u8>,
    failure: Option<Error>,
    part: SyncSender<Part>,
}

/// Writes the answer to each line of stdin that is not blank, in order. `answer` appends one, with its line end.
///
/// # Errors
/// The first failure, after the answers to the lines before it.
pub(super) fn answer_each(
    out: &mut dyn Write,
    answer: impl Fn(&str, &mut String) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    input::say_that_stdin_is_read();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (to_answer, blocks) = sync_channel(threads * BLOCKS);
    let (to_write, parts) = sync_channel(threads * BLOCKS);
    let (blocks, answer) = (Arc::new(Mutex::new(blocks)), Arc::new(answer));
    for _ in 0..threads {
        let (blocks, answer) = (Arc::clone(&blocks), Arc::clone(&answer));
        Builder::new().spawn(move || answer_blocks(&blocks, &*answer)).map_err(output::no_thread)?;
    }
    let read = move || read_blocks(&mut std::io::stdin(), &to_answer, &to_write);
    let reader = Builder::new().spawn(read).map_err(output::no_thread)?;
    // After a failure nobody waits for the threads: stdin may stay open for ever.
    write_parts(out, &parts)?;
    reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(())
}

/// Cuts `input` into blocks until it ends, cannot be read, or nobody wants more.
fn read_blocks(input: &mut impl Read, to_answer: &SyncSender<Block>, to_write: &SyncSender<Receiver<Part>>) {
    let (mut rest, mut before) = (Vec::new(), 0);
    loop {
        let (lines, failure) = next_lines(input, &mut rest);
        let count = lines.iter().filter(|&&byte| byte == b'\n').count();
        let failure = failure.map(|error| error.context(place(before + count + 1)));
        let last = lines.is_empty() || failure.is_some();
        let (part, answered) = sync_channel(1);
        let block = Block { before, lines, failure, part };
        if to_write.send(answered).is_err() || to_answer.send(block).is_err() || last {
            return;
        }
        before += count;
    }
}

/// All whole lines that are at hand, at least one; the last one may lack its line end, and none are left when the input
/// has ended. What follows the last line end stays in `rest`.
fn next_lines(input: &mut impl Read, rest: &mut Vec<u8>) -> (Vec<u8>, Option<Error>) {
    loop {
        let seen = rest.len();
        rest.resize(seen + READ_BYTES, 0);
        let read = input.read(&mut rest[seen..]);
        rest.truncate(seen + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => return (std::mem::take(rest), None),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return (Vec::new(), Some(error.into())),
        }
        if let Some(end) = rest[seen..].iter().rposition(|&byte| byte == b'\n') {
            let after = rest.split_off(seen + end + 1);
            return (std::mem::replace(rest, after), None);
        }
        if rest.len() > MOST_LINE_BYTES {
            return (
                Vec::new(),
                Some(anyhow!("more than {MOST_LINE_BYTES} bytes; longer lines are not read")),
            );
        }
    }
}

/// Answers blocks until there are no more.
fn answer_blocks(blocks: &Mutex<Receiver<Block>>, answer: &impl Fn(&str, &mut String) -> Result<()>) {
    loop {
        let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Block { before, lines, failure, part }) = next else { return };
        let (text, own) = answer_block(before, &lines, answer);
        // Nobody receives it after a failure.
        let _ = part.send((text, own.or(failure)));
    }
}

fn answer_block(before: usize, lines: &[u8], answer: &impl Fn(&str, &mut String) -> Result<()>) -> Part {
    let mut text = String::new();
    for (index, line) in lines.split(|&byte| byte == b'\n').enumerate() {
        if let Err(error) = answer_line(line, answer, &mut text) {
            return (text, Some(error.context(place(before + index + 1))));
        }
    }
    (text, None)
}

fn answer_line(
    line: &[u8],
    answer: &impl Fn(&str, &mut String) -> Result<()>,
    text: &mut String,
) -> Result<()> {
    let line = std::str::from_utf8(line)
        .map_err(|error| anyhow!("not UTF-8 text: byte {} does not fit", error.valid_up_to()))?;
    if line.trim().is_empty() { Ok(()) } else { answer(line, text) }
}

/// Writes the answers in order, and flushes whenever the next one is not there yet.
fn write_parts(out: &mut dyn Write, parts: &Receiver<Receiver<Part>>) -> Result<()> {
    while let Some(part) = next(out, parts)? {
        // A thread that ends without an answer has panicked, and has said so.
        let Some((text, failure)) = next(out, &part)? else { std::panic::resume_unwind(Box::new(())) };
        out.write_all(text.as_bytes())?;
        failure.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// What is received next, if anything is; what was written before is flushed first if it takes a while.
fn next<T>(out: &mut dyn Write, receiver: &Receiver<T>) -> std::io::Result<Option<T>> {
    match receiver.try_recv() {
        Ok(received) => Ok(Some(received)),
        Err(TryRecvError::Disconnected) => Ok(None),
        Err(TryRecvError::Empty) => {
            out.flush()?;
            Ok(receiver.recv().ok())
        }
    }
}

/// Where in stdin, for messages.
fn place(line: usize) -> String {
    format!("line {line} of stdin")
}

/// Reads a line as an object of JSON.
///
/// # Errors
/// It is none, or not what is wanted; the message names the column.
pub(super) fn object<'l, T: serde::Deserialize<'l>>(line: &'l str, example: &str) -> Result<T> {
    if !line.trim_start().starts_with('{') {
        return Err(anyhow!("not a JSON object, such as {example}"));
    }
    serde_json::from_str(line).map_err(|error| {
        let fault = Fault::of(line, &error);
        anyhow!("column {}: {}", fault.column, fault.what)
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

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let (mut input, mut rest, mut found) =
            (Pieces(pieces.iter().map(|piece| piece.to_vec()).collect()), Vec::new(), Vec::new());
        loop {
            let (lines, failure) = next_lines(&mut input, &mut rest);
            assert!(failure.is_none(), "{failure:?}");
            if lines.is_empty() {
                return found;
            }
            found.push(String::from_utf8(lines).unwrap());
        }
    }

    #[test]
    fn lines_come_as_soon_as_they_are_whole() {
        assert_eq!(all(&[b"a\nb\nc", b"d\n", b"\n"]), ["a\nb\n", "cd\n", "\n"]);
        assert_eq!(all(&[b"a", b"b", b"c"]), ["abc"]);
        assert_eq!(all(&[]), [""; 0]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let pieces = vec![vec![b'x'; READ_BYTES]; MOST_LINE_BYTES / READ_BYTES + 9];
        let (mut input, mut rest) = (Pieces(pieces), Vec::new());
        let (lines, failure) = next_lines(&mut input, &mut rest);
        assert!(lines.is_empty() && failure.unwrap().to_string().contains("16777216 bytes"));
        assert_eq!(input.0.len(), 8);
    }
}
