//! The memory budget of a machine: every load leases its memory before it allocates.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::AddressLimit;
use crate::{MemoryError, available_memory};

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryUse {
    /// Packed weights.
    Weights,
    /// A tokenizer's tables.
    Tokenizer,
    /// Activations and logits of a forward pass.
    Workspace,
    /// The KV cache at its full extent.
    Kv,
    /// Rows that were swapped out of the KV cache and cannot be computed again.
    Swapped,
}

impl MemoryUse {
    /// Every use: those of a load, in the order of its leases, then those of a running engine.
    pub const ALL: [MemoryUse; 5] =
        [MemoryUse::Weights, MemoryUse::Tokenizer, MemoryUse::Workspace, MemoryUse::Kv, MemoryUse::Swapped];

    /// The name in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryUse::Weights => "the weights",
            MemoryUse::Tokenizer => "the tokenizer",
            MemoryUse::Workspace => "the workspace",
            MemoryUse::Kv => "the KV cache",
            MemoryUse::Swapped => "rows of the KV cache",
        }
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Bytes that leases hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldMemory {
    bytes: [u64; MemoryUse::ALL.len()],
    /// Bytes that are leased and not yet allocated.
    promised: u64,
}

impl HeldMemory {
    /// Bytes for one use.
    pub fn of(&self, what: MemoryUse) -> u64 {
        self.bytes[what as usize]
    }

    /// Bytes that are leased and not yet allocated.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    /// Bytes of all uses.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// The bound that a lease would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBound {
    /// [`MachineOptions::memory_limit`](crate::MachineOptions::memory_limit).
    Limit,
    /// What the operating system says is free.
    Free,
    /// The process's limit of addresses (`ulimit -v`).
    Addresses(AddressLimit),
}

/// Why memory was not leased. No lease was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// The lease would exceed a bound.
    #[error("{what} would take {needed} bytes; {}", bound_text(*bound, *held, *most))]
    Exceeded {
        /// What the memory was for.
        what: MemoryUse,
        /// Bytes asked for.
        needed: u64,
        /// Bytes that are held by other leases, those of the same load included.
        held: u64,
        /// Bytes that all together may hold.
        most: u64,
        /// The bound.
        bound: MemoryBound,
    },
    /// There is no limit, and the operating system does not tell what is free.
    #[error("{0}; say how much may be taken with `memory_limit`")]
    Unknown(#[from] MemoryError),
}

fn bound_text(bound: MemoryBound, held: u64, most: u64) -> String {
    match bound {
        MemoryBound::Limit => format!("`memory_limit` allows {most}, of which {held} are in use or promised"),
        MemoryBound::Free => format!("free memory is {most}, of which {held} are in use or promised"),
        MemoryBound::Addresses(AddressLimit { limit, mapped, kept }) => format!(
            "of the {limit} bytes of addresses that the limit of this process (ulimit -v) allows, {mapped} are in use, {kept} are \
             kept for stacks and {held} are promised, which leaves {}",
            most.saturating_sub(held)
        ),
    }
}

/// Queries the free memory.
type FreeMemory = dyn Fn() -> Result<u64, MemoryError> + Send + Sync;

/// Queries the limit of addresses.
type Addresses = fn() -> Option<AddressLimit>;

/// The memory budget of a machine, shared by everything that is loaded on it.
pub struct MemoryBudget {
    limit: Option<u64>,
    free: Box<FreeMemory>,
    addresses: Addresses,
    held: Mutex<HeldMemory>,
}

impl MemoryBudget {
    /// A budget of `limit` bytes, or of what is free at each request where that is less.
    pub fn new(limit: Option<u64>) -> Arc<MemoryBudget> {
        MemoryBudget::with_queries(limit, available_memory, AddressLimit::of_process)
    }

    /// As [`new`](Self::new), asking `free` for the bytes that are free.
    pub fn with_query(
        limit: Option<u64>,
        free: impl Fn() -> Result<u64, MemoryError> + Send + Sync + 'static,
    ) -> Arc<MemoryBudget> {
        MemoryBudget::with_queries(limit, free, || None)
    }

    fn with_queries(
        limit: Option<u64>,
        free: impl Fn() -> Result<u64, MemoryError> + Send + Sync + 'static,
        addresses: Addresses,
    ) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget { limit, free: Box::new(free), addresses, held: Mutex::default() })
    }

    /// The limit of [`new`](Self::new).
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes of all leases.
    pub fn held(&self) -> HeldMemory {
        *self.lock()
    }

    /// Bytes that can be leased now.
    ///
    /// # Errors
    /// There is no limit, and the operating system does not tell what is free.
    pub fn room(&self) -> Result<u64, BudgetError> {
        Ok(self.tightest()?.0)
    }

    /// Bytes that can be leased now, and their bound.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn tightest(&self) -> Result<(u64, MemoryBound), BudgetError> {
        let rooms = self.rooms()?;
        Ok(rooms.into_iter().min_by_key(|&(room, _)| room).expect("a budget has a bound"))
    }

    /// Bytes that each bound leaves to be leased now.
    pub(crate) fn rooms(&self) -> Result<Vec<(u64, MemoryBound)>, BudgetError> {
        let bounds = self.bounds(&self.held())?.into_iter().flatten();
        Ok(bounds.map(|bound| (bound.most.saturating_sub(bound.held), bound.bound)).collect())
    }

    /// Leases all of these, or none.
    ///
    /// # Errors
    /// The first use that does not fit beside the others.
    pub fn lease(self: &Arc<Self>, wanted: &[(MemoryUse, u64)]) -> Result<Vec<MemoryLease>, BudgetError> {
        let mut held = self.lock();
        let bounds = self.bounds(&held)?;
        let mut asked = 0u64;
        for &(what, needed) in wanted {
            let over = bounds.iter().flatten().find(|bound| {
                u128::from(bound.held) + u128::from(asked) + u128::from(needed) > u128::from(bound.most)
            });
            if let Some(&Bound { most, held, bound }) = over {
                return Err(BudgetError::Exceeded { what, needed, held: held + asked, most, bound });
            }
            asked += needed;
        }
        held.promised += asked;
        for &(what, bytes) in wanted {
            held.bytes[what as usize] += bytes;
        }
        let lease = |&(what, bytes)| MemoryLease { budget: Arc::clone(self), what, bytes, promised: true };
        Ok(wanted.iter().map(lease).collect())
    }

    /// Every bound with the bytes that count against it. Allocated memory is no longer free, so
    /// against the free memory only promised bytes count.
    fn bounds(&self, held: &HeldMemory) -> Result<[Option<Bound>; 3], MemoryError> {
        let limit = self.limit.map(|most| Bound { most, held: held.total(), bound: MemoryBound::Limit });
        let free = match (self.free)() {
            Ok(most) => Some(Bound { most, held: held.promised, bound: MemoryBound::Free }),
            // The user's own number is one to go by.
            Err(_) if limit.is_some() => None,
            Err(error) => return Err(error),
        };
        let addresses = (self.addresses)().map(|found| Bound {
            most: found.room(),
            held: held.promised,
            bound: MemoryBound::Addresses(found),
        });
        Ok([limit, free, addresses])
    }

    fn lock(&self) -> MutexGuard<'_, HeldMemory> {
        // Counts change in one step, so they are valid after a panic of another holder.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryBudget")
            .field("limit", &self.limit)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// A bound of all leases.
#[derive(Debug, Clone, Copy)]
struct Bound {
    most: u64,
    held: u64,
    bound: MemoryBound,
}

/// A part of the budget, given back on drop. Its owner drops the memory first.
#[derive(Debug)]
pub struct MemoryLease {
    budget: Arc<MemoryBudget>,
    what: MemoryUse,
    bytes: u64,
    promised: bool,
}

impl MemoryLease {
    /// What the memory is for.
    pub fn what(&self) -> MemoryUse {
        self.what
    }

    /// Bytes of the lease.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that `bytes` were allocated, which the system no longer counts as free. Memory that
    /// is allocated bit by bit stays promised.
    ///
    /// # Errors
    /// More bytes than were leased, and the rest does not fit.
    pub fn taken(&mut self, bytes: u64) -> Result<(), BudgetError> {
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|&more| more > 0) {
            // This lease takes over their bytes, so they must not be given back.
            let leases = self.budget.lease(&[(self.what, more)])?;
            leases.into_iter().for_each(std::mem::forget);
            self.bytes = bytes;
        }
        let budget = Arc::clone(&self.budget);
        let mut held = budget.lock();
        if std::mem::take(&mut self.promised) {
            held.promised -= self.bytes;
        }
        held.bytes[self.what as usize] -= self.bytes - bytes;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        let mut held = self.budget.lock();
        held.bytes[self.what as usize] -= self.bytes;
        if self.promised {
            held.promised -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemoryUse::{Kv, Tokenizer, Weights, Workspace};

    fn unknown() -> Result<u64, MemoryError> {
        Err(MemoryError::new("no table"))
    }

    #[test]
    fn leases_are_counted_once_and_given_back_once() {
        let budget = MemoryBudget::with_query(Some(100), || Ok(1000));
        let first = budget.lease(&[(Weights, 40), (Kv, 30)]).unwrap();
        assert_eq!((budget.held().of(Weights), budget.held().of(Kv), budget.room().unwrap()), (40, 30, 30));
        let before = budget.held();
        let refused = budget.lease(&[(Tokenizer, 10), (Workspace, 21)]).unwrap_err();
        let (most, bound) = (100, MemoryBound::Limit);
        assert_eq!(refused, BudgetError::Exceeded { what: Workspace, needed: 21, held: 80, most, bound });
        assert_eq!(
            refused.to_string(),
            "the workspace would take 21 bytes; `memory_limit` allows 100, of which 80 are in use or promised"
        );
        assert_eq!(budget.held(), before, "a refusal disturbs nothing");
        let second = budget.lease(&[(Tokenizer, 10), (Workspace, 20)]).unwrap();
        assert_eq!(budget.room(), Ok(0));
        drop(first);
        assert_eq!(budget.held().total(), 30);
        drop(second);
        assert_eq!(budget.held(), HeldMemory::default());
    }

    #[test]
    fn free_memory_bounds_what_is_not_yet_taken() {
        let free = Arc::new(Mutex::new(100));
        let query = Arc::clone(&free);
        let budget = MemoryBudget::with_query(None, move || Ok(*query.lock().unwrap()));
        let mut weights = budget.lease(&[(Weights, 60)]).unwrap().remove(0);
        assert_eq!(budget.room(), Ok(40), "promised");
        *free.lock().unwrap() = 40;
        weights.taken(60).unwrap();
        assert_eq!(budget.room(), Ok(40), "taken");
        let refused = budget.lease(&[(Kv, 41)]).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the KV cache would take 41 bytes; free memory is 40, of which 0 are in use or promised"
        );
        assert!(budget.lease(&[(Kv, u64::MAX), (Weights, u64::MAX)]).is_err());
    }

    #[test]
    fn a_limit_of_addresses_bounds_as_free_memory_does() {
        let found = || Some(AddressLimit { limit: 1000, mapped: 200, kept: 750 });
        let budget = MemoryBudget::with_queries(Some(90), || Ok(100), found);
        let weights = budget.lease(&[(Weights, 40)]).unwrap();
        assert_eq!(budget.tightest(), Ok((10, MemoryBound::Addresses(found().unwrap()))));
        let refused = budget.lease(&[(Kv, 11)]).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the KV cache would take 11 bytes; of the 1000 bytes of addresses that the limit of this process (ulimit -v) allows, \
             200 are in use, 750 are kept for stacks and 40 are promised, which leaves 10"
        );
        drop(weights);
    }

    #[test]
    fn what_was_taken_may_differ_from_what_was_leased() {
        let budget = MemoryBudget::with_query(Some(100), || Ok(100));
        let mut lease = budget.lease(&[(Tokenizer, 50)]).unwrap().remove(0);
        assert!(lease.taken(101).is_err());
        assert_eq!((lease.bytes(), budget.held().total()), (50, 50));
        lease.taken(70).unwrap();
        assert_eq!((lease.bytes(), budget.held().total(), budget.held().promised), (70, 70, 0));
        drop(lease);
        let mut lease = budget.lease(&[(Tokenizer, 50)]).unwrap().remove(0);
        lease.taken(20).unwrap();
        assert_eq!(budget.room(), Ok(80));
        drop(lease);
        assert_eq!(budget.held(), HeldMemory::default());
    }

    #[test]
    fn an_unknown_amount_is_neither_nothing_nor_everything() {
        let budget = MemoryBudget::with_query(None, unknown);
        let refused = budget.lease(&[(Weights, 1)]).unwrap_err();
        assert!(matches!(refused, BudgetError::Unknown(_)) && budget.room().is_err());
        assert!(refused.to_string().contains("no table; say how much may be taken with `memory_limit`"));
        let limited = MemoryBudget::with_query(Some(10), unknown);
        assert!(limited.lease(&[(Weights, 10)]).is_ok() && limited.lease(&[(Weights, 11)]).is_err());
    }

    #[test]
    fn threads_never_hold_more_than_the_limit_together() {
        let budget = MemoryBudget::with_query(Some(64), || Ok(1 << 40));
        std::thread::scope(|scope| {
            for bytes in [7, 11, 13, 17, 31] {
                let budget = &budget;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let lease = budget.lease(&[(Weights, bytes), (Kv, bytes)]);
                        assert!(budget.held().total() <= 64);
                        drop(lease);
                    }
                });
            }
        });
        assert_eq!(budget.held(), HeldMemory::default());
    }
}
