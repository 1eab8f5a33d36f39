//! Sampling: the logits that somebody reads, computed a bounded number of rows at a time and read
//! on all threads.

use std::sync::{Mutex, PoisonError};

use super::{Chunk, Worker};
use crate::EngineError;
use crate::event::PromptRow;
use crate::guard::guarded;
use crate::sampler::logprobs::LogSoftmax;
use crate::sampler::{SampleError, Sampler, Scratch};
use crate::sequence::{Chosen, Sequence};

/// What the logits of a step said about one sequence.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) rows: Vec<PromptRow>,
    /// The next token, and behind guesses those that would follow them; or what failed.
    pub(super) chosen: Vec<Result<Chosen, EngineError>>,
}

/// A row of logits that somebody reads.
struct WantedRow {
    /// Index among the step's chunks.
    chunk: usize,
    /// The token's index in its sequence.
    position: usize,
    /// Its row in the batch.
    row: u32,
}

/// What one row of logits is read for. Holds no part of a sequence that threads cannot share.
struct RowReader<'a> {
    position: usize,
    tokens: &'a [u32],
    sampler: &'a Sampler,
    /// Tokens that may be chosen, where the sequence has a constraint.
    allowed: Option<Result<&'a [u32], EngineError>>,
    /// Index of the generated token.
    index: u32,
    /// The token that follows in the prompt, and how many of the most probable ones to report,
    /// where the prediction is to be reported.
    scores: Option<(Option<u32>, usize)>,
    samples: bool,
    /// Alternatives to report for a sampled token.
    logprobs: Option<u32>,
}

/// What one row of logits gave.
#[derive(Default)]
struct RowRead {
    prompt_row: Option<PromptRow>,
    chosen: Option<Chosen>,
}

impl Worker {
    /// Computes the logits that somebody reads, as many rows at a time as the head takes, and reads
    /// them. A panic or an error while a row is read is that of its sequence alone.
    pub(super) fn sample(&mut self, chunks: &[Chunk]) -> Result<Vec<Outcome>, EngineError> {
        let mut outcomes: Vec<Outcome> = chunks.iter().map(|_| Outcome::default()).collect();
        let wanted = self.wanted_rows(chunks);
        for run in wanted.chunks(self.model.extents().rows as usize) {
            let rows: Vec<u32> = run.iter().map(|wanted| wanted.row).collect();
            let started = (self.clock)();
            self.batch.run_head(&mut *self.model, &self.store, &rows)?;
            self.report.head += self.since(started);
            let started = (self.clock)();
            self.wait_for_masks(chunks, run);
            self.counts.head_runs += 1;
            self.counts.head_rows += rows.len() as u64;
            for (wanted, read) in run.iter().zip(self.read_rows(chunks, run)) {
                outcomes[wanted.chunk].add(read);
            }
            self.report.sample += self.since(started);
        }
        Ok(outcomes)
    }

    /// The masks of the tokens that these rows choose: made, if need be, now.
    fn wait_for_masks(&mut self, chunks: &[Chunk], run: &[WantedRow]) {
        for wanted in run {
            let sequence = &mut self.running[chunks[wanted.chunk].sequence];
            if sequence.samples_at(wanted.position)
                && let Some(constraint) = &mut sequence.constraint
            {
                constraint.wait();
            }
        }
    }

    fn wanted_rows(&self, chunks: &[Chunk]) -> Vec<WantedRow> {
        let mut wanted = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let sequence = &self.running[chunk.sequence];
            wanted.extend(sequence.wanted_positions(chunk.tokens).map(|position| WantedRow {
                chunk: index,
                position,
                row: chunk.first_row + (position - sequence.fed) as u32,
            }));
        }
        wanted
    }

    /// Reads the rows of the last run of the head on the model's threads. The results are in the
    /// order of the rows, whichever thread read which.
    fn read_rows(&self, chunks: &[Chunk], run: &[WantedRow]) -> Vec<Result<RowRead, EngineError>> {
        let rows = run.iter().enumerate().map(|(row, wanted)| {
            let sequence = &self.running[chunks[wanted.chunk].sequence];
            (RowReader::new(sequence, wanted.position), guarded(|| self.model.logits(row)))
        });
        let rows: Vec<_> = rows.collect();
        let results: Vec<Mutex<Option<Result<RowRead, EngineError>>>> =
            rows.iter().map(|_| Mutex::new(None)).collect();
        let scratches = &self.scratches;
        self.model.run_jobs(rows.len(), &|index| {
            let (reader, logits) = &rows[index];
            let mut scratch = scratches.take();
            let read = guarded(|| match logits {
                Ok(Ok(logits)) => reader.read(logits, &mut scratch),
                Ok(Err(error)) => Err(error.clone().into()),
                Err(panic) => Err(panic.clone()),
            });
            scratches.give(scratch);
            *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(read.flatten());
        });
        let read = |result: Mutex<Option<_>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| read(result).expect("every row was read")).collect()
    }
}

impl Outcome {
    /// Takes in what one more row gave.
    fn add(&mut self, read: Result<RowRead, EngineError>) {
        match read {
            Ok(read) => {
                self.rows.extend(read.prompt_row);
                self.chosen.extend(read.chosen.map(Ok));
            }
            Err(error) => self.chosen.push(Err(error)),
        }
    }
}

impl<'a> RowReader<'a> {
    fn new(sequence: &'a Sequence, position: usize) -> RowReader<'a> {
        let samples = sequence.samples_at(position);
        // Behind guesses the token is chosen as if they were right.
        let tokens = if samples { position + 1 } else { sequence.tokens().len() };
        let scores = || (sequence.next_in_prompt(position), sequence.prompt_top().unwrap_or(0));
        RowReader {
            position,
            tokens: &sequence.known_and_guessed()[..tokens],
            sampler: &sequence.sampler,
            allowed: sequence
                .constraint
                .as_ref()
                .filter(|_| samples)
                .map(|constraint| constraint.mask(tokens - sequence.tokens().len())),
            index: (sequence.generated() + tokens - sequence.tokens().len()) as u32,
            scores: sequence.scores_at(position).then(scores),
            samples,
            logprobs: sequence.logprobs,
        }
    }

    fn read(&self, logits: &[f32], scratch: &mut Scratch) -> Result<RowRead, EngineError> {
        let allowed = self.allowed.clone().transpose()?;
        self.score_and_choose(logits, allowed, scratch)
            .map_err(|error| EngineError::Sample(error, self.index))
    }

    fn score_and_choose(
        &self,
        logits: &[f32],
        allowed: Option<&[u32]>,
        scratch: &mut Scratch,
    ) -> Result<RowRead, SampleError> {
        let mut read = RowRead::default();
        if let Some((next, top)) = self.scores {
            read.prompt_row = Some(self.prompt_row(next, top, logits, scratch)?);
        }
        if self.samples {
            let id = self.sampler.sample(scratch, logits, allowed, self.tokens, self.index)?;
            let logprobs = match self.logprobs {
                Some(top) => Some(LogSoftmax::of(logits)?.of_token(scratch, logits, id, top as usize)),
                None => None,
            };
            read.chosen = Some(Chosen { id, logprobs });
        }
        Ok(read)
    }

    fn prompt_row(
        &self,
        next: Option<u32>,
        top: usize,
        logits: &[f32],
        scratch: &mut Scratch,
    ) -> Result<PromptRow, SampleError> {
        let softmax = LogSoftmax::of(logits)?;
        Ok(PromptRow {
            position: self.position as u32,
            token: self.tokens[self.position],
            next_logprob: next.map(|id| softmax.logprob(logits[id as usize])),
            top: softmax.top(scratch, logits, top),
        })
    }
}

/// Memory that samplers use, one for each thread that samples at the same time.
#[derive(Default)]
pub(super) struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    fn take(&self) -> Scratch {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, scratch: Scratch) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}
