//! Constraints: which tokens an answer may have, as a grammar or a schema says.
//!
//! A constraint's next mask is made on a thread of its own while the model computes the logits that
//! it is for. What panics or fails in a constraint fails its request and no other.

use std::sync::mpsc::{self, Receiver, Sender};

use crate::EngineError;
use crate::guard::guarded;

/// Restricts the tokens of one answer.
pub trait Constraint: Send {
    /// Sets the bits of the tokens that may come next: bit `id % 32` of word `id / 32`. All bits
    /// are unset before. Those of end-of-generation tokens do not count: [`can_end`](Self::can_end)
    /// decides.
    ///
    /// # Errors
    /// There is no mask; the request fails.
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError>;

    /// Takes in a token that the last mask allowed.
    ///
    /// # Errors
    /// The token cannot be taken in; the request fails.
    fn commit(&mut self, token: u32) -> Result<TextState, ConstraintError>;

    /// Whether the text so far is complete, so that the answer may end.
    fn can_end(&mut self) -> bool;
}

/// Whether anything may follow the tokens so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextState {
    /// More tokens may come.
    Open,
    /// The text is complete, and nothing may follow: the answer ends.
    Complete,
}

/// Why a constraint cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// What a constraint made for the next token.
pub(crate) struct Prepared {
    constraint: Box<dyn Constraint>,
    pub(crate) mask: Vec<u32>,
}

/// A sequence's constraint, which is with the helper thread while its next mask is made.
pub(crate) enum Constrained {
    /// No mask was asked for yet.
    Idle(Box<dyn Constraint>),
    Coming(Receiver<Result<Prepared, EngineError>>),
    Ready(Prepared),
    Failed(EngineError),
}

impl Constrained {
    /// Has the next mask made.
    pub(crate) fn prepare(&mut self, helper: &mut Helper) {
        let taken = std::mem::replace(self, Constrained::Failed(EngineError::Stopped));
        *self = match taken {
            Constrained::Idle(constraint) => helper.prepare(constraint, Vec::new()),
            Constrained::Ready(Prepared { constraint, mask }) => helper.prepare(constraint, mask),
            other => other,
        };
    }

    /// Waits for the mask that was asked for.
    pub(crate) fn wait(&mut self) {
        if let Constrained::Coming(coming) = self {
            let prepared = coming.recv().unwrap_or(Err(EngineError::Stopped));
            *self = prepared.map_or_else(Constrained::Failed, Constrained::Ready);
        }
    }

    /// The mask, after [`wait`](Self::wait).
    pub(crate) fn mask(&self) -> Result<&[u32], EngineError> {
        match self {
            Constrained::Ready(prepared) => Ok(&prepared.mask),
            Constrained::Failed(error) => Err(error.clone()),
            Constrained::Idle(_) | Constrained::Coming(_) => panic!("the mask was waited for"),
        }
    }

    /// Takes in a token that was chosen with the mask.
    pub(crate) fn commit(&mut self, token: u32) -> Result<TextState, EngineError> {
        match self {
            Constrained::Ready(prepared) => {
                prepared.constraint.commit(token).map_err(EngineError::Constraint)
            }
            Constrained::Failed(error) => Err(error.clone()),
            Constrained::Idle(_) | Constrained::Coming(_) => panic!("a token is chosen with a mask"),
        }
    }
}

/// A constraint whose next mask is to be made.
struct Job {
    constraint: Box<dyn Constraint>,
    mask: Vec<u32>,
    answer: Sender<Result<Prepared, EngineError>>,
}

/// The thread that makes masks. It starts with the first constraint.
pub(crate) struct Helper {
    jobs: Option<Sender<Job>>,
    /// Words of a mask.
    words: usize,
    end_tokens: Vec<u32>,
}

impl Helper {
    /// For masks of `vocab` tokens, of which `end_tokens` end a generation.
    pub(crate) fn new(vocab: usize, end_tokens: Vec<u32>) -> Helper {
        Helper { jobs: None, words: vocab.div_ceil(32), end_tokens }
    }

    fn prepare(&mut self, constraint: Box<dyn Constraint>, mask: Vec<u32>) -> Constrained {
        let (answer, coming) = mpsc::channel();
        let job = Job { constraint, mask, answer };
        match self.jobs().and_then(|jobs| jobs.send(job).map_err(|_| EngineError::Stopped)) {
            Ok(()) => Constrained::Coming(coming),
            Err(error) => Constrained::Failed(error),
        }
    }

    fn jobs(&mut self) -> Result<&Sender<Job>, EngineError> {
        if self.jobs.is_none() {
            let (jobs, receiver) = mpsc::channel();
            let (words, end_tokens) = (self.words, self.end_tokens.clone());
            let builder = std::thread::Builder::new().name("minfer-masks".to_owned());
            let started = builder.spawn(move || make_masks(&receiver, words, &end_tokens));
            started.map_err(|error| EngineError::Panicked(format!("no thread for masks: {error}")))?;
            self.jobs = Some(jobs);
        }
        Ok(self.jobs.as_ref().expect("it was just started"))
    }
}

fn make_masks(jobs: &Receiver<Job>, words: usize, end_tokens: &[u32]) {
    for Job { constraint, mut mask, answer } in jobs {
        let made = guarded(move || {
            let mut constraint = constraint;
            mask.clear();
            mask.resize(words, 0);
            constraint.mask(&mut mask).map_err(EngineError::Constraint)?;
            let can_end = constraint.can_end();
            for &id in end_tokens {
                let (word, bit) = (&mut mask[id as usize / 32], 1 << (id % 32));
                *word = if can_end { *word | bit } else { *word & !bit };
            }
            Ok(Prepared { constraint, mask })
        });
        // The request may have ended meanwhile. What a constraint does when it is dropped is its
        // own fault too.
        let _ = guarded(move || drop(answer.send(made.flatten())));
    }
}
