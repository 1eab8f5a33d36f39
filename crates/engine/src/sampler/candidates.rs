//! The tokens that are still candidates, and their logits.

use super::SampleError;
use super::exp::LANES;
use super::mass::{BLOCK, Cut, mass};

/// Where at most one token in so many is allowed, a list of them is cheaper than a copy of all.
const ALLOWED_SHARE: usize = 16;

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

/// Candidates in one of three forms: all tokens, with the model's logits or a changed copy of them;
/// those of all tokens that a cut keeps; or a list of those that are left, in order of id or best
/// first.
pub(super) struct Candidates<'a> {
    logits: &'a [f32],
    pub(super) scratch: &'a mut Scratch,
    /// The logits are those of the changed copy.
    edited: bool,
    /// The highest of all logits, while it is known.
    highest: Option<f32>,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    All,
    Cut(Cut),
    List,
}

impl<'a> Candidates<'a> {
    /// All tokens.
    pub(super) fn new(scratch: &'a mut Scratch, logits: &'a [f32]) -> Result<Candidates<'a>, SampleError> {
        let highest = Some(checked_highest(logits)?);
        Ok(Candidates { logits, scratch, edited: false, highest, form: Form::All })
    }

    /// Logits of all tokens, if all tokens are candidates.
    pub(super) fn dense(&self) -> Option<&[f32]> {
        matches!(self.form, Form::All).then(|| self.all_logits())
    }

    fn all_logits(&self) -> &[f32] {
        if self.edited { &self.scratch.edited } else { self.logits }
    }

    /// Changes the logit of one token, if it is still a candidate, to a finite one or negative
    /// infinity. Costs a copy of all logits the first time.
    pub(super) fn change(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        let logit = match self.form {
            Form::All => self.edit().get_mut(id as usize),
            Form::Cut(_) | Form::List => {
                let mut list = self.list().iter_mut();
                list.find(|candidate| candidate.id == id).map(|candidate| &mut candidate.logit)
            }
        };
        if let Some(logit) = logit {
            // What is masked stays masked.
            *logit = if *logit == f32::NEG_INFINITY { *logit } else { change(*logit).min(f32::MAX) };
        }
    }

    /// Changes every logit.
    pub(super) fn change_all(&mut self, change: impl Fn(f32) -> f32) {
        match self.form {
            Form::All => self.edit().iter_mut().for_each(|logit| *logit = change(*logit)),
            Form::Cut(_) | Form::List => {
                self.list().iter_mut().for_each(|candidate| candidate.logit = change(candidate.logit));
            }
        }
    }

    /// Only tokens whose bit is set stay candidates. They are all tokens before.
    pub(super) fn allow(&mut self, bits: &[u32]) {
        let allowed: u32 = bits.iter().map(|word| word.count_ones()).sum();
        if allowed as usize > self.logits.len() / ALLOWED_SHARE {
            let edited = self.edit();
            let (words, rest) = edited.as_chunks_mut::<32>();
            for (logits, &word) in words.iter_mut().zip(bits) {
                mask_word(logits, word);
            }
            if !rest.is_empty() {
                mask_word(rest, bits[words.len()]);
            }
            return;
        }
        let mut list = std::mem::take(&mut self.scratch.list);
        list.clear();
        let logits = self.all_logits();
        for (index, &word) in bits.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let id = 32 * index as u32 + left.trailing_zeros();
                left &= left - 1;
                let logit = logits.get(id as usize).copied().filter(|&logit| logit != f32::NEG_INFINITY);
                list.extend(logit.map(|logit| Candidate { id, logit }));
            }
        }
        self.scratch.list = list;
        self.form = Form::List;
    }

    /// These tokens are no candidates.
    pub(super) fn mask(&mut self, ids: &[u32]) {
        for &id in ids {
            self.change(id, |_| f32::NEG_INFINITY);
        }
    }

    /// The highest logit; negative infinity when nothing is left.
    pub(super) fn highest(&mut self) -> f32 {
        match self.form {
            // A cut keeps the best.
            Form::All | Form::Cut(_) => {
                let highest = self.highest.unwrap_or_else(|| highest(self.all_logits()));
                *self.highest.insert(highest)
            }
            Form::List => {
                let logits = self.scratch.list.iter().map(|candidate| candidate.logit);
                logits.fold(f32::NEG_INFINITY, f32::max)
            }
        }
    }

    /// Calls `visit` with every candidate in order; masked ones may be left out.
    pub(super) fn for_each(&self, visit: impl FnMut(Candidate)) {
        match self.form {
            Form::All => Cut::NONE.for_each(self.all_logits(), 0, visit),
            Form::Cut(cut) => cut.for_each(self.all_logits(), 0, visit),
            Form::List => self.scratch.list.iter().copied().for_each(visit),
        }
    }

    /// Keeps the candidates up to and with `last`, in their order. Masked ones are never kept.
    pub(super) fn cut(&mut self, last: Candidate) {
        match self.form {
            Form::All => self.form = Form::Cut(Cut(last)),
            Form::Cut(Cut(before)) if last.order(&before).is_lt() => self.form = Form::Cut(Cut(last)),
            Form::Cut(_) => {}
            Form::List => self.scratch.list.retain(|candidate| candidate.order(&last).is_le()),
        }
    }

    /// The candidates as a list, in order of id or best first.
    pub(super) fn list(&mut self) -> &mut Vec<Candidate> {
        if self.form != Form::List {
            let mut list = std::mem::take(&mut self.scratch.list);
            list.clear();
            self.for_each(|candidate| list.push(candidate));
            self.scratch.list = list;
            self.form = Form::List;
        }
        &mut self.scratch.list
    }

    /// Keeps the `count` best, best first.
    pub(super) fn keep_best(&mut self, count: usize) {
        if self.form == Form::All {
            let mut list = std::mem::take(&mut self.scratch.list);
            scan_best(self.all_logits(), count, &mut list);
            self.scratch.list = list;
            self.form = Form::List;
        }
        let list = self.list();
        cut_to_best(list, count);
        list.sort_unstable_by(Candidate::order);
    }

    /// The best candidate.
    pub(super) fn best(&mut self) -> Result<u32, SampleError> {
        let highest = self.highest();
        if highest == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let id = match self.form {
            Form::All | Form::Cut(_) => {
                self.all_logits().iter().position(|&logit| logit == highest).map(|id| id as u32)
            }
            Form::List => self.scratch.list.iter().min_by(|a, b| a.order(b)).map(|candidate| candidate.id),
        };
        id.ok_or(SampleError::AllMasked)
    }

    /// The candidate that `draw`, a number uniform over u64, falls on when each takes its share in
    /// order.
    pub(super) fn draw(&mut self, draw: u64) -> Result<u32, SampleError> {
        let highest = self.highest();
        if highest == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let cut = match self.form {
            Form::All => Cut::NONE,
            Form::Cut(cut) => cut,
            Form::List => {
                let masses = self.list_masses(highest);
                let (index, _) = falls_on(&masses, place(draw, masses.iter().sum()));
                self.scratch.masses = masses;
                return Ok(self.scratch.list[index].id);
            }
        };
        let mut sums = std::mem::take(&mut self.scratch.masses);
        let chosen = draw_dense(self.all_logits(), cut, highest, draw, &mut sums);
        self.scratch.masses = sums;
        Ok(chosen)
    }

    /// Masses of the listed candidates in order, beside one of the highest logit. The memory goes
    /// back to the scratch.
    pub(super) fn list_masses(&mut self, highest: f32) -> Vec<u64> {
        let mut masses = std::mem::take(&mut self.scratch.masses);
        masses.clear();
        masses.extend(self.list().iter().map(|candidate| mass(candidate.logit, highest)));
        masses
    }

    /// Makes the copy that changes go to.
    fn edit(&mut self) -> &mut [f32] {
        if !self.edited {
            self.scratch.edited.clear();
            self.scratch.edited.extend_from_slice(self.logits);
            self.edited = true;
        }
        self.highest = None;
        &mut self.scratch.edited
    }
}

fn mask_word(logits: &mut [f32], word: u32) {
    for (bit, logit) in logits.iter_mut().enumerate() {
        *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
    }
}

/// Where a number uniform over u64 falls among `total` places.
fn place(draw: u64, total: u64) -> u64 {
    ((u128::from(draw) * u128::from(total)) >> 64) as u64
}

/// The index of the mass that a place below their sum falls on, and the place inside of it.
fn falls_on(masses: &[u64], mut place: u64) -> (usize, u64) {
    let index = masses.iter().position(|&mass| {
        let falls = place < mass;
        place = if falls { place } else { place - mass };
        falls
    });
    (index.expect("a number below the total falls on a share"), place)
}

/// The token that `draw` falls on. Sums masses by block, so that only one block is looked at token
/// by token.
fn draw_dense(logits: &[f32], cut: Cut, highest: f32, draw: u64, sums: &mut Vec<u64>) -> u32 {
    sums.clear();
    let blocks = (0u32..).step_by(BLOCK).zip(logits.chunks(BLOCK));
    sums.extend(blocks.map(|(first, block)| cut.mass(block, first, highest)));
    let (block, place) = falls_on(sums, place(draw, sums.iter().sum()));
    let first = block * BLOCK;
    let (mut ids, mut masses) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    cut.for_each(&logits[first..logits.len().min(first + BLOCK)], first as u32, |candidate| {
        ids.push(candidate.id);
        masses.push(mass(candidate.logit, highest));
    });
    ids[falls_on(&masses, place).0]
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

/// The highest of all logits, each of which must be a number or negative infinity.
pub(super) fn checked_highest(logits: &[f32]) -> Result<f32, SampleError> {
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let (mut most, mut good) = ([f32::NEG_INFINITY; LANES], [u32::MAX; LANES]);
    for chunk in chunks {
        for ((most, good), &logit) in most.iter_mut().zip(&mut good).zip(chunk) {
            *most = if logit > *most { logit } else { *most };
            *good &= u32::from(logit < f32::INFINITY).wrapping_neg();
        }
    }
    if good == [u32::MAX; LANES] && !rest.iter().any(|&logit| is_bad(logit)) {
        return Ok(most.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &logit| most.max(logit)));
    }
    let id = logits.iter().position(|&logit| is_bad(logit)).expect("one was found");
    Err(SampleError::NotFinite { id: id as u32, value: logits[id] })
}

fn is_bad(logit: f32) -> bool {
    logit.is_nan() | (logit == f32::INFINITY)
}

/// Collects the `count` best and some more. Looks closer only at runs of logits that reach beyond
/// the worst one known to be needed; of equal ones the first are kept.
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
