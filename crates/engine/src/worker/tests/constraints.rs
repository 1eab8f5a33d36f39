//! Constraints: what they allow is all that comes, and their faults are their requests' own.

use super::*;
use crate::constraint::{Constraint, ConstraintError, TextState};
use crate::test_model::VOCAB;
use crate::{Events, RequestId, Submission};

/// Allows two bytes that depend on all tokens so far; the text may end after an even number of
/// tokens and is complete after `length`.
#[derive(Clone)]
struct Narrow {
    taken: Vec<u32>,
    length: usize,
    panics: Option<(Call, usize)>,
    fails: Option<(Call, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Mask,
    Commit,
    CanEnd,
    Drop,
}

fn narrow(length: usize) -> Narrow {
    Narrow { taken: Vec::new(), length, panics: None, fails: None }
}

/// The bytes that may follow.
fn choices(taken: &[u32]) -> [u32; 2] {
    let sum = taken.iter().fold(7u32, |sum, &id| sum.wrapping_mul(31).wrapping_add(id));
    [sum % 250, (sum / 250) % 250]
}

impl Narrow {
    fn enter(&self, call: Call) -> Result<(), ConstraintError> {
        let here = Some((call, self.taken.len()));
        assert!(self.panics != here, "the constraint panics in {call:?}");
        if self.fails == here { Err(ConstraintError("no way".to_owned())) } else { Ok(()) }
    }
}

impl Constraint for Narrow {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        self.enter(Call::Mask)?;
        assert!(allowed.iter().all(|&word| word == 0));
        for id in choices(&self.taken).into_iter().chain([END]) {
            allowed[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(())
    }

    fn commit(&mut self, token: u32) -> Result<TextState, ConstraintError> {
        self.enter(Call::Commit)?;
        assert!(choices(&self.taken).contains(&token), "{token} was not allowed");
        self.taken.push(token);
        Ok(if self.taken.len() == self.length { TextState::Complete } else { TextState::Open })
    }

    fn can_end(&mut self) -> bool {
        let _ = self.enter(Call::CanEnd);
        self.taken.len().is_multiple_of(2)
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || self.panics != Some((Call::Drop, self.taken.len())),
            "the constraint panics when it is dropped"
        );
    }
}

fn submit(bench: &mut Bench, request: Request, constraint: Narrow) -> (RequestId, Events) {
    let (sink, events) = Events::channel();
    let submission = Submission::new(request, sink).constraint(Box::new(constraint));
    (bench.submit_with(submission).unwrap(), events)
}

fn assert_allowed(ids: &[u32]) {
    for (index, &id) in ids.iter().enumerate() {
        let ends = id == END && index % 2 == 0;
        assert!(ends || choices(&ids[..index]).contains(&id), "{id} at {index}");
    }
}

#[test]
fn only_allowed_tokens_come_and_a_complete_text_ends() {
    for seed in 0..20 {
        let mut bench = bench(&eloquent());
        let request = Request { ignore_eos: false, ..sampled(&[5, 6], 40, seed) };
        let events = submit(&mut bench, request.clone(), narrow(9)).1;
        bench.drain();
        let answer = Answer::of(&events);
        assert_allowed(&answer.ids());
        match &answer.finished().reason {
            FinishReason::Stop(StopCause::Complete) => assert_eq!(answer.ids().len(), 9),
            FinishReason::Stop(StopCause::EndToken(_)) => assert_eq!(answer.ids().last(), Some(&END)),
            other => panic!("{other:?}"),
        }
        // Among neighbours, with few blocks and in small steps the text is the same.
        let mut shape = small(4);
        shape.config.n_batch = 3;
        let mut busy = Bench::new(&eloquent(), shape);
        let others: Vec<_> = (1..4).map(|seed| busy.submit(sampled(&[seed as u32; 9], 30, seed))).collect();
        let events = submit(&mut busy, request, narrow(9)).1;
        let second = submit(&mut busy, sampled(&[8; 20], 30, seed), narrow(30)).1;
        busy.drain();
        assert_eq!(Answer::of(&events).ids(), answer.ids());
        assert_allowed(&Answer::of(&second).ids());
        assert!(others.into_iter().all(|other| other.is_ok()));
        busy.assert_idle();
    }
}

#[test]
fn a_text_that_may_not_end_does_not() {
    let mut bench = bench(&scripted(1, ""));
    // The model wants to end at once; after an odd number of tokens the constraint does not let it.
    let events = submit(&mut bench, greedy(&[1]), narrow(5)).1;
    bench.drain();
    assert_eq!(Answer::of(&events).ids(), [END], "an empty text may end");
    struct Never(Narrow);
    impl Constraint for Never {
        fn mask(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
            self.0.mask(allowed)
        }

        fn commit(&mut self, token: u32) -> Result<TextState, ConstraintError> {
            self.0.commit(token)
        }

        fn can_end(&mut self) -> bool {
            false
        }
    }
    let (sink, events) = Events::channel();
    let submission = Submission::new(greedy(&[1]), sink).constraint(Box::new(Never(narrow(5))));
    bench.submit_with(submission).unwrap();
    bench.drain();
    let answer = Answer::of(&events);
    assert_eq!((answer.ids().len(), answer.ids().contains(&END)), (5, false));
}

#[test]
fn faults_of_a_constraint_fail_its_request_and_no_other() {
    let calls = [Call::Mask, Call::Commit, Call::CanEnd, Call::Drop];
    for (call, at, panics) in
        calls.into_iter().flat_map(|call| [0, 1, 5].map(|at| [(call, at, true), (call, at, false)])).flatten()
    {
        if !panics && matches!(call, Call::CanEnd | Call::Drop) {
            continue;
        }
        let mut bench = bench(&eloquent());
        let fault = Some((call, at));
        let mut constraint = narrow(12);
        *(if panics { &mut constraint.panics } else { &mut constraint.fails }) = fault;
        // One that panics when it is dropped is dropped after so many tokens.
        let tokens = if call == Call::Drop { at as u32 } else { 12 };
        let events = submit(&mut bench, sampled(&[5, 6], tokens, 9), constraint).1;
        let others: Vec<_> = (1..4).map(|seed| sampled(&[seed as u32, 7, 9], 12, seed)).collect();
        let running: Vec<_> = others.iter().map(|request| bench.submit(request.clone()).unwrap().1).collect();
        bench.drain();
        let answer = Answer::of(&events);
        match answer.last() {
            Event::Failed(EngineError::Panicked(text)) if panics => assert!(text.contains("panics")),
            Event::Failed(EngineError::Constraint(error)) if !panics => assert_eq!(error.0, "no way"),
            Event::Finished(_) if call == Call::Drop => {}
            other => panic!("{call:?} at {at}: {other:?}"),
        }
        let mut quiet = self::bench(&eloquent());
        for (request, events) in others.into_iter().zip(running) {
            assert_eq!(Answer::of(&events).ids(), quiet.answer(request).ids());
        }
        bench.assert_idle();
        let events = submit(&mut bench, sampled(&[5, 6], 12, 9), narrow(12)).1;
        bench.drain();
        assert_allowed(&Answer::of(&events).ids());
        assert_eq!(Answer::of(&events_of(&mut bench)).ids().len(), 12);
    }
}

fn events_of(bench: &mut Bench) -> Events {
    let events = submit(bench, sampled(&[5, 6], 12, 9), narrow(12)).1;
    bench.drain();
    events
}

#[test]
fn a_constraint_that_allows_nothing_is_an_error() {
    struct Nothing;
    impl Constraint for Nothing {
        fn mask(&mut self, _: &mut [u32]) -> Result<(), ConstraintError> {
            Ok(())
        }

        fn commit(&mut self, _: u32) -> Result<TextState, ConstraintError> {
            Ok(TextState::Open)
        }

        fn can_end(&mut self) -> bool {
            false
        }
    }
    let mut bench = bench(&eloquent());
    let (sink, events) = Events::channel();
    bench.submit_with(Submission::new(greedy(&[1]), sink).constraint(Box::new(Nothing))).unwrap();
    bench.drain();
    let Event::Failed(EngineError::Sample(error, 0)) = Answer::of(&events).last().clone() else { panic!() };
    assert_eq!(error, crate::SampleError::AllMasked);
    assert!(!VOCAB.is_multiple_of(32), "the last word of a mask is not full");
    bench.assert_idle();
}
