//! Suggestions of errors about memory: settings that were tried with the same model and suffice.

use minfer_graph::KvFormat;

use crate::room::{Asked, Needs, wanted_context};
use crate::{AddressLimit, BudgetError, ContextLength, KvOptions, LoadOptions, Machine, MemoryBound};

/// The largest `n_batch` of a suggestion that changes several settings.
const SMALL_BATCH: u32 = 64;
/// The smallest `n_batch` that is suggested: below it the workspace hardly shrinks.
const LEAST_BATCH: u32 = 16;
/// Addresses that the stack of a thread of the pool takes, at least.
const THREAD_ADDRESSES: u64 = 2 << 20;

/// A setting and a value for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// [`LoadOptions::n_ctx`], as [`ContextLength::Fixed`].
    NCtx(u32),
    /// [`LoadOptions::n_batch`].
    NBatch(u32),
    /// Both formats of [`LoadOptions::kv`].
    KvFormat(KvFormat),
    /// [`LoadOptions::kv_memory`], in bytes.
    KvMemory(u64),
    /// [`MachineOptions::threads`](crate::MachineOptions::threads).
    Threads(usize),
    /// [`MachineOptions::memory_limit`](crate::MachineOptions::memory_limit), in bytes.
    MemoryLimit(u64),
    /// The process's limit of addresses (`ulimit -v`), in KiB.
    AddressLimit(u64),
}

/// Settings that suffice together.
pub type Suggestion = Vec<Setting>;

/// Suggestions for needs that the budget has refused.
pub(crate) fn for_memory(asked: &Asked<'_>, needs: &Needs, refused: &BudgetError) -> Vec<Suggestion> {
    let BudgetError::Exceeded { bound, .. } = *refused else { return Vec::new() };
    let mut suggestions = one_setting(asked);
    suggestions.extend(fewer_threads(asked).map(|setting| vec![setting]));
    if suggestions.is_empty() {
        suggestions.extend(several_settings(asked));
    }
    suggestions.extend(larger_limit(asked.machine, bound, needs.total()).map(|setting| vec![setting]));
    suggestions
}

/// Suggestions where the KV cache of one sequence takes `needed` bytes, more than `kv_memory`.
pub(crate) fn for_kv_memory(asked: &Asked<'_>, needed: u64) -> Vec<Suggestion> {
    let mut suggestions = vec![vec![Setting::KvMemory(needed)]];
    match longest_context(asked, |options| needs_with(asked, options).is_some()) {
        Some(n_ctx) => suggestions.push(vec![Setting::NCtx(n_ctx)]),
        None => suggestions.extend(smallest_cache(asked)),
    }
    let fits = |format: &KvFormat| needs_with(asked, &with_format(asked.options, *format)).is_some();
    let format = smaller_formats(asked).into_iter().find(fits);
    suggestions.extend(format.map(|format| vec![Setting::KvFormat(format)]));
    suggestions
}

/// A cache of one block, where more positions were asked for.
fn smallest_cache(asked: &Asked<'_>) -> Option<Suggestion> {
    let block = asked.options.kv.block_tokens;
    if !matches!(asked.options.n_ctx, ContextLength::Fixed(n_ctx) if n_ctx > block) {
        return None;
    }
    let n_ctx = ContextLength::Fixed(block);
    let options = LoadOptions { n_ctx, n_slots: 1, kv_memory: None, ..asked.options.clone() };
    Some(vec![Setting::KvMemory(needs_with(asked, &options)?.kv), Setting::NCtx(block)])
}

/// Suggestions that change one setting.
fn one_setting(asked: &Asked<'_>) -> Vec<Suggestion> {
    let fits_with = |format: &KvFormat| fits(asked, &with_format(asked.options, *format));
    let format = smaller_formats(asked).into_iter().find(fits_with);
    let settings = [
        longest_context(asked, |options| fits(asked, options)).map(Setting::NCtx),
        largest_batch(asked).map(Setting::NBatch),
        format.map(Setting::KvFormat),
    ];
    settings.into_iter().flatten().map(|setting| vec![setting]).collect()
}

/// A suggestion that changes several settings.
fn several_settings(asked: &Asked<'_>) -> Option<Suggestion> {
    let formats = [None].into_iter().chain(smaller_formats(asked).into_iter().map(Some));
    formats.into_iter().find_map(|format| {
        let mut options = asked.options.clone();
        options.n_batch = options.n_batch.min(SMALL_BATCH);
        options = format.map_or(options.clone(), |format| with_format(&options, format));
        let small = Asked { options: &options, ..*asked };
        let n_ctx = longest_context(&small, |options| fits(asked, options));
        let is_fixed = matches!(options.n_ctx, ContextLength::Fixed(_));
        if n_ctx.is_none() && (is_fixed || !fits(asked, &options)) {
            return None;
        }
        let settings = [
            n_ctx.map(Setting::NCtx),
            (options.n_batch < asked.options.n_batch).then_some(Setting::NBatch(options.n_batch)),
            format.map(Setting::KvFormat),
        ];
        Some(settings.into_iter().flatten().collect())
    })
}

/// The most positions, in whole blocks and fewer than were asked for, with which the options are
/// good.
fn longest_context(asked: &Asked<'_>, is_good: impl Fn(&LoadOptions) -> bool) -> Option<u32> {
    let ContextLength::Fixed(n_ctx) = asked.options.n_ctx else { return None };
    let block = asked.options.kv.block_tokens;
    let with =
        |blocks: u32| LoadOptions { n_ctx: ContextLength::Fixed(blocks * block), ..asked.options.clone() };
    // Bisection: `bad` is a number of blocks that is too large.
    let (mut good, mut bad) = (0, n_ctx.div_ceil(block));
    while bad > good + 1 {
        let middle = good + (bad - good) / 2;
        if is_good(&with(middle)) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good * block)
}

fn largest_batch(asked: &Asked<'_>) -> Option<u32> {
    let smaller = std::iter::successors(Some(1u32 << 30), |batch| Some(batch / 2));
    let mut smaller = smaller.take_while(|&batch| batch >= LEAST_BATCH);
    smaller.find(|&n_batch| {
        n_batch < asked.options.n_batch && fits(asked, &LoadOptions { n_batch, ..asked.options.clone() })
    })
}

fn smaller_formats(asked: &Asked<'_>) -> Vec<KvFormat> {
    asked.options.kv.smaller(asked.model)
}

fn with_format(options: &LoadOptions, format: KvFormat) -> LoadOptions {
    LoadOptions { kv: KvOptions { k_format: format, v_format: format, ..options.kv }, ..options.clone() }
}

/// Fewer threads need a smaller workspace and fewer stacks.
fn fewer_threads(asked: &Asked<'_>) -> Option<Setting> {
    let threads = asked.machine.threads();
    let halves = std::iter::successors(Some(threads / 2), |threads| Some(threads / 2));
    halves.take_while(|&fewer| fewer > 0).find(|&fewer| fits_on(asked, fewer)).map(Setting::Threads)
}

/// Whether the needs of a pool of `fewer` threads fit. No thread is started to find out.
fn fits_on(asked: &Asked<'_>, fewer: usize) -> bool {
    let machine = asked.machine.sized_for(fewer);
    let Ok(needs) = (Asked { machine: &machine, ..*asked }).find() else { return false };
    let spared = (asked.machine.threads() - fewer) as u64 * THREAD_ADDRESSES;
    let promised = machine.budget().held().promised();
    let is_enough = |&(room, bound): &(u64, MemoryBound)| match bound {
        MemoryBound::Addresses(AddressLimit { limit, mapped, kept }) => {
            mapped + kept + promised + needs.total() <= limit + spared
        }
        MemoryBound::Limit | MemoryBound::Free => needs.total() <= room,
    };
    machine.budget().rooms().is_ok_and(|rooms| rooms.iter().all(is_enough))
}

/// The smallest limit with room for `total` bytes more, where no other bound is in the way.
fn larger_limit(machine: &Machine, bound: MemoryBound, total: u64) -> Option<Setting> {
    let budget = machine.budget();
    let is_same = |other: &MemoryBound| std::mem::discriminant(&bound) == std::mem::discriminant(other);
    if budget.rooms().ok()?.iter().any(|(room, other)| !is_same(other) && *room < total) {
        return None;
    }
    match bound {
        MemoryBound::Limit => Some(Setting::MemoryLimit(budget.held().total() + total)),
        MemoryBound::Addresses(found) => {
            Some(Setting::AddressLimit(found.kibibytes_for(budget.held().promised() + total)))
        }
        MemoryBound::Free => None,
    }
}

/// Whether there is room for what other options need.
fn fits(asked: &Asked<'_>, options: &LoadOptions) -> bool {
    let room = asked.machine.budget().room();
    needs_with(asked, options).is_some_and(|needs| room.is_ok_and(|room| needs.total() <= room))
}

/// What other options need; `None` where they exceed `kv_memory`.
fn needs_with(asked: &Asked<'_>, options: &LoadOptions) -> Option<Needs> {
    let wanted = wanted_context(asked.model, options).ok()?;
    Asked { wanted, options, ..*asked }.find().ok()
}
