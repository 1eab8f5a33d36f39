use minfer_graph::{BackendError, NullBackend};
use proptest::prelude::*;

use super::STALLED_STEPS;
use crate::event::{Event, FinishReason, Progress, PromptRow, StopCause};
use crate::kv::BlockOrder;
use crate::test_model::{Answer, Bench, END, Shape, eloquent, greedy, scripted};
use crate::{EngineConfig, EngineError, EventSink, PromptLogprobs, Request, SamplingParams, SubmitError};

mod admission;
mod constraints;
mod endings;
mod faults;
mod leaving;
mod one_answer;
mod panics;
mod step_time;

fn bench(backend: &NullBackend) -> Bench {
    Bench::new(backend, Shape::default())
}

fn small(blocks: u32) -> Shape {
    Shape { blocks, ..Shape::default() }
}

/// A request for `tokens` sampled tokens with a seed.
fn sampled(prompt: &[u32], tokens: u32, seed: u64) -> Request {
    Request {
        max_tokens: Some(tokens),
        ignore_eos: true,
        seed: Some(seed),
        sampling: SamplingParams { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() },
        ..Request::new(prompt.to_vec())
    }
}

/// What happens between two steps of the stress test.
#[derive(Debug, Clone)]
enum Action {
    Submit { prompt: usize, tokens: u32, seed: u64 },
    Cancel(usize),
    Leave(usize),
    Fail,
    Panic,
    Refuse,
    Step,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..40usize, 0..30u32, 0..50u64)
            .prop_map(|(prompt, tokens, seed)| Action::Submit { prompt, tokens, seed }),
        1 => (0..20usize).prop_map(Action::Cancel),
        1 => (0..20usize).prop_map(Action::Leave),
        1 => Just(Action::Fail),
        1 => Just(Action::Panic),
        1 => Just(Action::Refuse),
        12 => Just(Action::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens, each request ends once, memory comes back, and what ends well is what it
    /// would be alone.
    #[test]
    fn every_request_ends_once(
        actions in prop::collection::vec(action(), 1..80),
        blocks in 3..12u32,
        shuffle in prop::option::of(any::<u64>()),
    ) {
        let mut shape = small(blocks);
        shape.config.block_order = shuffle.map_or(BlockOrder::LowestFirst, BlockOrder::Shuffled);
        let mut bench = Bench::new(&eloquent(), shape);
        let mut requests = Vec::new();
        for action in actions {
            match action {
                Action::Submit { prompt, tokens, seed } => {
                    let request = sampled(&vec![seed as u32; prompt], tokens, seed);
                    if let Ok((id, events)) = bench.submit(request.clone()) {
                        requests.push((id, request, Some(events)));
                    }
                }
                Action::Cancel(index) => {
                    if let Some((id, ..)) = requests.get(index) {
                        bench.worker.cancel(*id);
                    }
                }
                Action::Leave(index) => {
                    if let Some((_, _, events)) = requests.get_mut(index) {
                        *events = None;
                    }
                }
                Action::Fail => bench.backend.fail_run(1),
                Action::Panic => bench.backend.panic_run(1),
                Action::Refuse => bench.backend.refuse_allocation(1),
                Action::Step => prop_assert!(bench.worker.step()),
            }
        }
        bench.drain();
        bench.worker.step();
        bench.assert_idle();
        prop_assert!(!bench.stats().stalled);
        let stats = bench.stats();
        prop_assert_eq!(stats.finished + stats.failed + stats.cancelled, requests.len() as u64);
        let config = EngineConfig { n_ctx: shape.config.n_ctx, ..Shape::default().config };
        let mut quiet = Bench::new(&eloquent(), Shape { config, ..small(64) });
        for (_, request, events) in requests {
            let Some(events) = events else { continue };
            let answer = Answer::of(&events);
            let alone = quiet.answer(request).ids();
            prop_assert!(alone.starts_with(&answer.ids()), "{:?} is no beginning of {:?}", answer.ids(), alone);
        }
    }
}
