//! Logprobs of a prompt: ids are fed, the prediction at every position is read.

use anyhow::{Result, bail};
use minfer::engine::event::PromptRow;
use minfer::engine::{Engine, Event, PromptLogprobs, Request};

/// Feeds `ids` as they are and calls `read` with each position's prediction, in order.
pub(super) fn score(
    engine: &Engine,
    ids: Vec<u32>,
    top: u32,
    mut read: impl FnMut(PromptRow) -> Result<()>,
) -> Result<()> {
    let request =
        Request { max_tokens: Some(0), prompt_logprobs: Some(PromptLogprobs { top }), ..Request::new(ids) };
    let (_, events) = engine.submit(request)?;
    loop {
        match events.recv() {
            Some(Event::PromptLogprobs(rows)) => rows.into_iter().try_for_each(&mut read)?,
            Some(Event::Failed(error)) => return Err(error.into()),
            Some(Event::Finished(_)) => return Ok(()),
            Some(Event::Cancelled) | None => bail!("the engine stopped"),
            Some(Event::Progress(_) | Event::Token(_)) => {}
        }
    }
}
