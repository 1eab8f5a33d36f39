//! The tokens that may still be chosen.

use super::SampleError;
use super::exp::{LANES, exp};

/// A token with its logit as the stages have left it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
}

impl Candidate {
    /// Best first: higher logit, then lower id.
    pub(super) fn order(&self, other: &Candidate) -> std::cmp::Ordering {
        // Logits are numbers, and -0 equals 0.
        let by_logit = other.logit.partial_cmp(&self.logit).unwrap_or(std::cmp::Ordering::Equal);
        by_logit.then(self.id.cmp(&other.id))
    }
}

/// Memory that samplers share between calls.
#[derive(Debug, Default)]
pub struct Scratch {
    edited: Vec<f32>,
    list: Vec<Candidate>,
    pub(super) masses: Vec<u64>,
    pub(super) counts: Vec<(u32, u32)>,
}

/// Candidates in one of three forms: the model's logits untouched, a changed copy of them, or a list of those that are
/// left, in order of id or best first.
pub(super) struct Candidates<'a> {
    logits: &'a [f32],
    pub(super) scratch: &'a mut Scratch,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Untouched,
    Edited,
    List,
}

/// Probability mass of the best candidate. Masses are whole numbers, so that a sum is the same in every order; tokens
/// less probable than the best by more than this factor have none.
const UNIT: f64 = (1u64 << 43) as f64;

impl<'a> Candidates<'a> {
    /// All tokens.
    pub(super) fn new(scratch: &'a mut Scratch, logits: &'a [f32]) -> Result<Candidates<'a>, SampleError> {
        check(logits)?;
        Ok(Candidates { logits, scratch, form: Form::Untouched })
    }

    /// Logits of all tokens, unless only a list is left.
    pub(super) fn dense(&self) -> Option<&[f32]> {
        match self.form {
            Form::Untouched => Some(self.logits),
            Form::Edited => Some(&self.scratch.edited),
            Form::List => None,
        }
    }

    /// Changes the logit of one token, if it is still a candidate, to a finite one or negative infinity. Costs a copy of all
    /// logits the first time.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        let logit = match self.form {
            Form::List => {
                let mut list = self.scratch.list.iter_mut();
                list.find(|candidate| candidate.id == id).map(|candidate| &mut candidate.logit)
            }
            _ => self.edit().get_mut(id as usize),
        };
        if let Some(logit) = logit {
            // What is masked stays masked.
            *logit = if *logit == f32::NEG_INFINITY { *logit } else { change(*logit).min(f32::MAX) };
        }
    }

    /// Changes every logit.
    pub(super) fn change_all(&mut self, change: impl Fn(f32) -> f32) {
        match self.form {
            Form::List => {
                self.scratch.list.iter_mut().for_each(|candidate| candidate.logit = change(candidate.logit));
            }
            _ => self.edit().iter_mut().for_each(|logit| *logit = change(*logit)),
        }
    }

    /// These tokens are no candidates.
    pub(super) fn mask(&mut self, ids: &[u32]) {
        for &id in ids {
            self.change(id, |_| f32::NEG_INFINITY);
        }
    }

    /// The highest logit; negative infinity when nothing is left.
    pub(super) fn highest(&self) -> f32 {
        match self.dense() {
            Some(logits) => highest(logits),
            None => {
                let logits = self.scratch.list.iter().map(|candidate| candidate.logit);
                logits.fold(f32::NEG_INFINITY, f32::max)
            }
        }
    }

    /// Calls `visit` with every candidate, masked ones included.
    pub(super) fn for_each(&self, mut visit: impl FnMut(Candidate)) {
        match self.dense() {
            Some(logits) => {
                (0..).zip(logits).for_each(|(id, &logit)| visit(Candidate { id, logit }));
            }
            None => self.scratch.list.iter().copied().for_each(visit),
        }
    }

    /// Keeps those that `keep` picks, in their order. Masked ones are never kept.
    pub(super) fn retain(&mut self, keep: impl Fn(Candidate) -> bool) {
        let keep = |candidate: Candidate| candidate.logit > f32::NEG_INFINITY && keep(candidate);
        if self.form == Form::List {
            self.scratch.list.retain(|&candidate| keep(candidate));
            return;
        }
        let mut list = std::mem::take(&mut self.scratch.list);
        list.clear();
        self.for_each(|candidate| {
            if keep(candidate) {
                list.push(candidate);
            }
        });
        self.scratch.list = list;
        self.form = Form::List;
    }

    /// Keeps the `count` best, best first.
    pub(super) fn keep_best(&mut self, count: usize) {
        let mut list = std::mem::take(&mut self.scratch.list);
        if let Some(logits) = self.dense() {
            scan_best(logits, count, &mut list);
        }
        cut_to_best(&mut list, count);
        list.sort_unstable_by(Candidate::order);
        self.scratch.list = list;
        self.form = Form::List;
    }

    /// The best candidate.
    pub(super) fn best(&self) -> Result<u32, SampleError> {
        let highest = self.highest();
        if highest == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let id = match self.dense() {
            Some(logits) => logits.iter().position(|&logit| logit == highest).map(|id| id as u32),
            None => self.scratch.list.iter().min_by(|a, b| a.order(b)).map(|candidate| candidate.id),
        };
        id.ok_or(SampleError::AllMasked)
    }

    /// The candidate that `draw`, a number uniform over u64, falls on when each takes its share in order.
    pub(super) fn draw(&mut self, draw: u64) -> Result<u32, SampleError> {
        let highest = self.highest();
        if highest == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let masses = self.masses(highest);
        let total: u64 = masses.iter().sum();
        let mut left = ((u128::from(draw) * u128::from(total)) >> 64) as u64;
        let chosen = masses.iter().position(|&mass| {
            let falls = left < mass;
            left = left.wrapping_sub(mass);
            falls
        });
        self.scratch.masses = masses;
        let index = chosen.expect("a number below the total falls on a share");
        Ok(match self.form {
            Form::List => self.scratch.list[index].id,
            _ => index as u32,
        })
    }

    /// Shares of all candidates in order, beside one of the highest logit. The list goes back to the scratch.
    pub(super) fn masses(&mut self, highest: f32) -> Vec<u64> {
        let mut masses = std::mem::take(&mut self.scratch.masses);
        masses.clear();
        match self.dense() {
            Some(logits) => masses.extend(logits.iter().map(|&logit| mass(logit, highest))),
            None => {
                let list = self.scratch.list.iter();
                masses.extend(list.map(|candidate| mass(candidate.logit, highest)));
            }
        }
        masses
    }

    /// Makes the copy that changes go to.
    fn edit(&mut self) -> &mut [f32] {
        if self.form == Form::Untouched {
            self.scratch.edited.clear();
            self.scratch.edited.extend_from_slice(self.logits);
            self.form = Form::Edited;
        }
        &mut self.scratch.edited
    }
}

/// A candidate's share beside the best one's.
#[inline]
fn mass(logit: f32, highest: f32) -> u64 {
    /// Added to a smaller number it leaves that number, rounded, in the low bits.
    const ROUND: f64 = (1u64 << 52) as f64;
    let share = f64::from(exp(logit - highest)) * UNIT;
    (share + ROUND).to_bits() & ((1 << 52) - 1)
}

/// The highest of all logits.
pub(super) fn highest(logits: &[f32]) -> f32 {
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &logit| most.max(logit))
}

/// Every logit is a number or negative infinity.
pub(super) fn check(logits: &[f32]) -> Result<(), SampleError> {
    let is_bad = |logit: f32| logit.is_nan() | (logit == f32::INFINITY);
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let any = |logits: &[f32]| logits.iter().fold(false, |bad, &logit| bad | is_bad(logit));
    if !chunks.iter().fold(false, |bad, chunk| bad | any(chunk)) && !any(rest) {
        return Ok(());
    }
    let id = logits.iter().position(|&logit| is_bad(logit)).expect("one was found");
    Err(SampleError::NotFinite { id: id as u32, value: logits[id] })
}

/// Collects the `count` best and some more. Looks closer only at runs of logits that reach beyond the worst one known
/// to be needed; of equal ones the first are kept.
fn scan_best(logits: &[f32], count: usize, list: &mut Vec<Candidate>) {
    list.clear();
    let capacity = (4 * count).max(256);
    let mut bar = f32::NEG_INFINITY;
    for (index, chunk) in logits.chunks(LANES).enumerate() {
        if !chunk.iter().fold(false, |above, &logit| above | (logit > bar)) {
            continue;
        }
        let first = (index * LANES) as u32;
        let above = (first..).zip(chunk).filter(|&(_, &logit)| logit > bar);
        list.extend(above.map(|(id, &logit)| Candidate { id, logit }));
        if list.len() >= capacity {
            cut_to_best(list, count);
            bar = list.iter().map(|candidate| candidate.logit).fold(f32::INFINITY, f32::min);
        }
    }
}

fn cut_to_best(list: &mut Vec<Candidate>, count: usize) {
    if count < list.len() {
        list.select_nth_unstable_by(count, Candidate::order);
        list.truncate(count);
    }
}
