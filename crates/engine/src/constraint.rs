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

    /// How tokens that were guessed are checked ahead; `None` where they cannot be taken back, so
    /// that nothing is guessed.
    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        None
    }
}

/// A constraint that can go ahead of the answer and come back.
pub trait Ahead {
    /// Takes back the last `tokens` committed ones.
    ///
    /// # Errors
    /// They cannot be taken back; the request fails.
    fn take_back(&mut self, tokens: usize) -> Result<(), ConstraintError>;

    /// The tokens that come next in all likelihood, because no other text is allowed. None is
    /// always right.
    fn forced(&mut self) -> Vec<u32>;
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

/// What a constraint made for the next token and for those behind guesses.
pub(crate) struct Prepared {
    constraint: Box<dyn Constraint>,
    /// For the next token, then one more behind each guess that was committed.
    masks: Vec<Vec<u32>>,
    /// Guesses that are committed.
    guesses: Vec<u32>,
    /// Tokens that were chosen with the masks.
    chosen: usize,
}

impl Prepared {
    /// Takes back the guesses that were not chosen.
    fn settle(&mut self) -> Result<(), EngineError> {
        let wrong = self.guesses.len().saturating_sub(self.chosen);
        self.guesses.truncate(self.chosen);
        match self.constraint.ahead().filter(|_| wrong > 0) {
            Some(ahead) => ahead.take_back(wrong).map_err(EngineError::Constraint),
            None => Ok(()),
        }
    }

    fn commit(&mut self, token: u32) -> Result<TextState, EngineError> {
        if self.guesses.get(self.chosen) == Some(&token) {
            self.chosen += 1;
            return Ok(TextState::Open);
        }
        self.settle()?;
        self.chosen += 1;
        self.guesses.clear();
        self.constraint.commit(token).map_err(EngineError::Constraint)
    }
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
    /// Has the next mask made, and those behind `guesses`, unless they are already made or being
    /// made.
    pub(crate) fn prepare(&mut self, helper: &mut Helper, guesses: &[u32]) {
        let taken = std::mem::replace(self, Constrained::Failed(EngineError::Stopped));
        *self = match taken {
            Constrained::Idle(constraint) => helper.prepare(constraint, Vec::new(), guesses),
            Constrained::Ready(mut prepared) if prepared.chosen > 0 => {
                match guarded(|| prepared.settle()).flatten() {
                    Ok(()) => helper.prepare(prepared.constraint, prepared.masks, guesses),
                    Err(error) => Constrained::Failed(error),
                }
            }
            other => other,
        };
    }

    /// What can be guessed: `None` where masks are already under way or guesses cannot be taken
    /// back, else the tokens that are forced.
    pub(crate) fn forced(&mut self) -> Option<Vec<u32>> {
        let Constrained::Ready(prepared) = self else { return None };
        if prepared.chosen == 0 {
            return None;
        }
        let forced = guarded(|| {
            prepared.settle()?;
            Ok(prepared.constraint.ahead().map(Ahead::forced))
        });
        match forced.flatten() {
            Ok(forced) => forced,
            Err(error) => {
                *self = Constrained::Failed(error);
                None
            }
        }
    }

    /// Waits for the mask that was asked for.
    pub(crate) fn wait(&mut self) {
        if let Constrained::Coming(coming) = self {
            let prepared = coming.recv().unwrap_or(Err(EngineError::Stopped));
            *self = prepared.map_or_else(Constrained::Failed, Constrained::Ready);
        }
    }

    /// The mask behind so many guesses, after [`wait`](Self::wait).
    pub(crate) fn mask(&self, guesses: usize) -> Result<&[u32], EngineError> {
        match self {
            // Behind a guess that is not allowed there is none, and none is needed.
            Constrained::Ready(prepared) => {
                prepared.masks.get(guesses).map(Vec::as_slice).ok_or(EngineError::Stopped)
            }
            Constrained::Failed(error) => Err(error.clone()),
            Constrained::Idle(_) | Constrained::Coming(_) => panic!("the mask was waited for"),
        }
    }

    /// Takes in a token that was chosen with the mask.
    pub(crate) fn commit(&mut self, token: u32) -> Result<TextState, EngineError> {
        match self {
            Constrained::Ready(prepared) => prepared.commit(token),
            Constrained::Failed(error) => Err(error.clone()),
            Constrained::Idle(_) | Constrained::Coming(_) => panic!("a token is chosen with a mask"),
        }
    }
}

/// A constraint whose next mask is to be made.
struct Job {
    constraint: Box<dyn Constraint>,
    /// To be used again.
    masks: Vec<Vec<u32>>,
    guesses: Vec<u32>,
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

    fn prepare(
        &mut self,
        constraint: Box<dyn Constraint>,
        masks: Vec<Vec<u32>>,
        guesses: &[u32],
    ) -> Constrained {
        let (answer, coming) = mpsc::channel();
        let job = Job { constraint, masks, guesses: guesses.to_vec(), answer };
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
    for job in jobs {
        let answer = job.answer.clone();
        let made = guarded(move || job.masks(words, end_tokens));
        // The request may have ended meanwhile. What a constraint does when it is dropped is its
        // own fault too.
        let _ = guarded(move || drop(answer.send(made.flatten())));
    }
}

impl Job {
    /// The next mask, and those behind the guesses for as long as they are allowed.
    fn masks(self, words: usize, end_tokens: &[u32]) -> Result<Prepared, EngineError> {
        let Job { mut constraint, mut masks, guesses, .. } = self;
        masks.truncate(guesses.len() + 1);
        let mut committed = 0;
        loop {
            if masks.len() <= committed {
                masks.push(Vec::new());
            }
            let mask = &mut masks[committed];
            mask.clear();
            mask.resize(words, 0);
            constraint.mask(mask).map_err(EngineError::Constraint)?;
            let can_end = constraint.can_end();
            for &id in end_tokens {
                let (word, bit) = (&mut mask[id as usize / 32], 1 << (id % 32));
                *word = if can_end { *word | bit } else { *word & !bit };
            }
            let guess = guesses.get(committed).filter(|&&id| {
                let allowed = mask.get(id as usize / 32).is_some_and(|word| word & 1 << (id % 32) != 0);
                allowed && !end_tokens.contains(&id)
            });
            let Some(&guess) = guess else { break };
            if constraint.commit(guess).map_err(EngineError::Constraint)? == TextState::Complete {
                // The answer may end with it: that is for the token itself to say.
                let ahead = constraint.ahead().ok_or(EngineError::Stopped)?;
                ahead.take_back(1).map_err(EngineError::Constraint)?;
                break;
            }
            committed += 1;
        }
        masks.truncate(committed + 1);
        let guesses = guesses[..committed].to_vec();
        Ok(Prepared { constraint, masks, guesses, chosen: 0 })
    }
}
