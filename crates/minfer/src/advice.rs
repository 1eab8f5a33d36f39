//! What a refusal of memory advises: changes that were tried, each of which is enough.

use minfer_cpu::Pool;
use minfer_graph::KvFormat;

use crate::room::{Asked, Needs, wanted_context};
use crate::{AddressLimit, BudgetError, ContextLength, KvOptions, LoadOptions, Machine, MemoryBound};

/// Tokens of a forward that are few to ask for.
const LITTLE_BATCH: u32 = 64;
/// Tokens of a forward below which nothing is gained.
const LEAST_BATCH: u32 = 16;
/// Addresses that a thread of the pool has for its stack, at least.
const THREAD_ADDRESSES: u64 = 2 << 20;

/// For needs that memory does not suffice for: a clause with its separator, or nothing.
pub(crate) fn of_memory(asked: &Asked<'_>, needs: &Needs, refused: &BudgetError) -> String {
    let BudgetError::Exceeded { bound, .. } = *refused else { return String::new() };
    let mut changes = of_settings(asked);
    changes.extend(fewer_threads(asked));
    if changes.is_empty() {
        changes.extend(several_settings(asked));
    }
    let suffices = !changes.is_empty();
    changes.extend(larger_limit(asked.machine, bound, needs.total()));
    if !suffices {
        changes.push("a smaller model".to_owned());
    }
    format!("; try {}", listed(&changes))
}

/// For a cache of one sequence, `needed` bytes of it, that `kv_memory` does not suffice for.
pub(crate) fn of_kv_memory(asked: &Asked<'_>, needed: u64) -> String {
    let mut changes = vec![format!("`kv_memory` {needed}")];
    match longest_context(asked, |options| needs_with(asked, options).is_some()) {
        Some(n_ctx) => changes.push(format!("`n_ctx` {n_ctx}")),
        None => changes.extend(least_cache(asked)),
    }
    let smaller = |format: &KvFormat| needs_with(asked, &with_format(asked.options, *format)).is_some();
    let format = smaller_formats(asked).into_iter().find(smaller);
    changes.extend(format.map(|format| format!("`kv` {format}")));
    format!("; try {}", listed(&changes))
}

/// The least memory of a cache, where one of fewer positions than were asked for takes less.
fn least_cache(asked: &Asked<'_>) -> Option<String> {
    let block = asked.options.kv.block_tokens;
    let n_ctx = ContextLength::Fixed(block);
    let options = LoadOptions { n_ctx, n_slots: 1, kv_memory: None, ..asked.options.clone() };
    let least = needs_with(asked, &options).filter(|_| asked.wanted > block)?;
    matches!(asked.options.n_ctx, ContextLength::Fixed(_))
        .then(|| format!("`kv_memory` {} with `n_ctx` {block}", least.kv))
}

/// Changes of one setting.
fn of_settings(asked: &Asked<'_>) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(n_ctx) = longest_context(asked, |options| fits(asked, options)) {
        changes.push(format!("`n_ctx` {n_ctx}"));
    }
    if let Some(n_batch) = largest_batch(asked) {
        changes.push(format!("`n_batch` {n_batch}"));
    }
    let smaller = |format: &KvFormat| fits(asked, &with_format(asked.options, *format));
    changes.extend(smaller_formats(asked).into_iter().find(smaller).map(|format| format!("`kv` {format}")));
    changes
}

/// A change of several settings at once.
fn several_settings(asked: &Asked<'_>) -> Option<String> {
    let formats = [None].into_iter().chain(smaller_formats(asked).into_iter().map(Some));
    formats.into_iter().find_map(|format| {
        let mut options = asked.options.clone();
        options.n_batch = options.n_batch.min(LITTLE_BATCH);
        options = format.map_or(options.clone(), |format| with_format(&options, format));
        let little = Asked { options: &options, ..*asked };
        let n_ctx = longest_context(&little, |options| fits(asked, options));
        let is_fixed = matches!(options.n_ctx, ContextLength::Fixed(_));
        if n_ctx.is_none() && (is_fixed || !fits(asked, &options)) {
            return None;
        }
        let parts = [
            n_ctx.map(|n_ctx| format!("`n_ctx` {n_ctx}")),
            (options.n_batch < asked.options.n_batch).then(|| format!("`n_batch` {}", options.n_batch)),
            format.map(|format| format!("`kv` {format}")),
        ];
        Some(parts.into_iter().flatten().collect::<Vec<_>>().join(" with "))
    })
}

/// The most positions, whole blocks fewer than were asked for, with which settings are good.
fn longest_context(asked: &Asked<'_>, is_good: impl Fn(&LoadOptions) -> bool) -> Option<u32> {
    let ContextLength::Fixed(n_ctx) = asked.options.n_ctx else { return None };
    let block = asked.options.kv.block_tokens;
    let with =
        |blocks: u32| LoadOptions { n_ctx: ContextLength::Fixed(blocks * block), ..asked.options.clone() };
    // The first count of blocks that is too many.
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

/// Fewer threads need a smaller workspace, and fewer stacks.
fn fewer_threads(asked: &Asked<'_>) -> Option<String> {
    let threads = asked.machine.threads();
    let fewer = std::iter::successors(Some(threads / 2), |threads| Some(threads / 2));
    fewer.take_while(|&threads| threads > 0).find_map(|fewer| {
        // It has stacks too, beside those that there were.
        let machine = asked.machine.with_pool(Pool::new(fewer).ok()?);
        let spared = (threads - 1) as u64 * THREAD_ADDRESSES;
        let total = Asked { machine: &machine, ..*asked }.find().ok()?.total();
        let promised = machine.budget().held().promised();
        let is_enough = |&(room, bound): &(u64, MemoryBound)| match bound {
            MemoryBound::Addresses(AddressLimit { limit, mapped, kept }) => {
                mapped + kept + promised + total <= limit + spared
            }
            MemoryBound::Limit | MemoryBound::Free => total <= room,
        };
        machine.budget().rooms().ok()?.iter().all(is_enough).then(|| format!("`threads` {fewer}"))
    })
}

/// The least limit under which there is room for `total` bytes more, where it is the limit that stands in the way.
fn larger_limit(machine: &Machine, bound: MemoryBound, total: u64) -> Option<String> {
    let budget = machine.budget();
    let others = budget.rooms().ok()?;
    let is_alone = others.iter().all(|&(room, other)| is_alike(bound, other) || room >= total);
    match bound {
        _ if !is_alone => None,
        MemoryBound::Limit => Some(format!("`memory_limit` {}", budget.held().total() + total)),
        MemoryBound::Addresses(found) => {
            Some(format!("`ulimit -v {}`", found.kibibytes_for(budget.held().promised() + total)))
        }
        MemoryBound::Free => None,
    }
}

fn is_alike(one: MemoryBound, other: MemoryBound) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

/// Whether there is room for what other settings need.
fn fits(asked: &Asked<'_>, options: &LoadOptions) -> bool {
    let room = asked.machine.budget().room();
    needs_with(asked, options).is_some_and(|needs| room.is_ok_and(|room| needs.total() <= room))
}

/// What other settings need, where `kv_memory` suffices for them.
fn needs_with(asked: &Asked<'_>, options: &LoadOptions) -> Option<Needs> {
    let wanted = wanted_context(asked.model, options).ok()?;
    Asked { wanted, options, ..*asked }.find().ok()
}

fn listed(changes: &[String]) -> String {
    match changes {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        changes => changes.concat(),
    }
}
