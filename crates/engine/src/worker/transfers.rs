//! Rows that travel between the cache and other threads, in slices between steps.
//!
//! Rows that go out are pinned: their sequence shares its blocks until the last of them is copied,
//! and requests go on with them meanwhile. Rows that come in fill cells that nobody sees before the
//! last of them is there. Requests that need the memory come first: then what travels is given up.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};
use std::time::Duration;

use minfer_graph::{KvSide, KvSpec};

use super::Worker;
use crate::kv::SequenceId;
use crate::kv::session::{Cursor, SavedSequence, SessionError, places, sides};

/// Bytes that travel at once, about.
pub(crate) const CHUNK: usize = 256 << 10;
/// Chunks on their way at most.
pub(crate) const CHUNKS: usize = 8;
/// Time of a slice while no request runs: so long may a request that comes wait for it.
pub(crate) const IDLE_SLICE: Duration = Duration::from_millis(10);
/// A slice between two steps takes this share of a step's time.
const SHARE: u32 = 8;

/// What a thread writes to a file.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) saved: Vec<SavedSequence>,
    /// The rows of all of them in the order of a file. It ends early where they are given up.
    pub(crate) rows: Receiver<Vec<u8>>,
}

/// What happens with a sequence whose rows have come in.
type Arrival = Box<dyn FnOnce(&mut Worker, Result<SequenceId, SessionError>) + Send>;

/// Rows on their way.
pub(super) enum Transfer {
    Out { sequences: VecDeque<SequenceId>, cursor: Cursor, chunk: Vec<u8>, rows: SyncSender<Vec<u8>> },
    In { sequence: SequenceId, cursor: Cursor, chunk: Vec<u8>, rows: Receiver<Vec<u8>>, arrival: Arrival },
}

/// How far a slice has come.
enum Progress {
    /// It has moved something.
    Moved,
    /// The other side has to read or to write first.
    Waits,
    /// The transfer is over.
    Ended(Result<(), SessionError>),
}

impl Worker {
    /// Starts to copy out the rows of `sequences`, which are dropped afterwards.
    pub(super) fn send_rows(&mut self, sequences: Vec<SequenceId>, saved: Vec<SavedSequence>) -> Outgoing {
        let (sender, rows) = std::sync::mpsc::sync_channel(CHUNKS);
        if !sequences.is_empty() {
            let (sequences, cursor) = (sequences.into(), Cursor::default());
            self.transfers.push_back(Transfer::Out { sequences, cursor, chunk: Vec::new(), rows: sender });
        }
        Outgoing { saved, rows }
    }

    /// Starts to fill a sequence that was restored; it is published when it arrives, or dropped.
    pub(super) fn receive_rows(
        &mut self,
        sequence: SequenceId,
        rows: Receiver<Vec<u8>>,
        arrival: impl FnOnce(&mut Worker, Result<SequenceId, SessionError>) + Send + 'static,
    ) {
        let (cursor, chunk, arrival) = (Cursor::default(), Vec::new(), Box::new(arrival));
        self.transfers.push_back(Transfer::In { sequence, cursor, chunk, rows, arrival });
    }

    /// Moves rows for a while after a step that took `step`.
    pub(super) fn move_rows_beside(&mut self, step: Duration) {
        self.contained(|worker| worker.move_rows(step / SHARE));
    }

    /// Moves rows for about so long, one piece of each transfer at least. Returns whether something
    /// has moved: otherwise the other sides have to act first.
    pub(crate) fn move_rows(&mut self, time: Duration) -> bool {
        if self.transfers.is_empty() {
            return false;
        }
        let end = (self.clock)() + time;
        let spec = self.model.kv_spec().clone();
        let sides = sides(&spec);
        let mut moved = false;
        loop {
            let mut moves = false;
            for _ in 0..self.transfers.len() {
                let Some(mut transfer) = self.transfers.pop_front() else { break };
                match self.move_piece(&mut transfer, &spec, &sides) {
                    Progress::Ended(end) => self.end_transfer(transfer, end),
                    progress => {
                        moves |= matches!(progress, Progress::Moved);
                        self.transfers.push_back(transfer);
                        continue;
                    }
                }
                moves = true;
            }
            moved |= moves;
            if !moves || (self.clock)() >= end {
                return moved;
            }
        }
    }

    fn move_piece(
        &mut self,
        transfer: &mut Transfer,
        spec: &KvSpec,
        sides: &[(usize, usize, KvSide)],
    ) -> Progress {
        match transfer {
            Transfer::Out { sequences, cursor, chunk, rows } => {
                let Some(&sequence) = sequences.front() else {
                    return send(rows, chunk).unwrap_or(Progress::Ended(Ok(())));
                };
                if chunk.len() >= CHUNK
                    && let Some(waits) = send(rows, chunk)
                {
                    return waits;
                }
                let places = places(&self.store, sequence);
                let Some((piece, bytes)) = cursor.next(spec, sides, &places) else {
                    (*cursor, _) = (Cursor::default(), sequences.pop_front());
                    self.store.drop_sequence(self.model.arena(), sequence);
                    return Progress::Moved;
                };
                let start = chunk.len();
                chunk.resize(start + bytes, 0);
                match self.model.arena().read_rows(&piece, &mut chunk[start..]) {
                    Ok(()) => Progress::Moved,
                    Err(error) => Progress::Ended(Err(error.into())),
                }
            }
            Transfer::In { sequence, cursor, chunk, rows, .. } => {
                let places = places(&self.store, *sequence);
                let mut after = *cursor;
                let Some((piece, bytes)) = after.next(spec, sides, &places) else {
                    return Progress::Ended(Ok(()));
                };
                while chunk.len() < bytes {
                    match rows.try_recv() {
                        Ok(more) => chunk.extend(more),
                        Err(TryRecvError::Empty) => return Progress::Waits,
                        Err(TryRecvError::Disconnected) => {
                            return Progress::Ended(Err(SessionError::Interrupted));
                        }
                    }
                }
                *cursor = after;
                match self.model.arena().write_rows(&piece, &chunk[..bytes]) {
                    Ok(()) => drop(chunk.drain(..bytes)),
                    Err(error) => return Progress::Ended(Err(error.into())),
                }
                Progress::Moved
            }
        }
    }

    fn end_transfer(&mut self, transfer: Transfer, end: Result<(), SessionError>) {
        self.fragmented = true;
        match transfer {
            Transfer::Out { sequences, .. } => {
                for sequence in sequences {
                    self.store.drop_sequence(self.model.arena(), sequence);
                }
            }
            Transfer::In { sequence, arrival, .. } => {
                match end.is_ok() {
                    true => self.store.publish(sequence),
                    false => self.store.drop_sequence(self.model.arena(), sequence),
                }
                arrival(self, end.map(|()| sequence));
            }
        }
        self.settle();
    }

    /// Gives up what is on its way, so that its blocks serve requests. Returns whether there was
    /// anything.
    pub(super) fn abandon_transfers(&mut self) -> bool {
        let transfers = std::mem::take(&mut self.transfers);
        let any = !transfers.is_empty();
        for transfer in transfers {
            self.end_transfer(transfer, Err(SessionError::Interrupted));
        }
        any
    }

    /// After a panic, when the store knows none of their sequences any more.
    pub(super) fn forget_transfers(&mut self) {
        for transfer in std::mem::take(&mut self.transfers) {
            if let Transfer::In { arrival, .. } = transfer {
                arrival(self, Err(SessionError::Interrupted));
            }
        }
    }

    /// Whether cells of rows that come in are not published yet.
    pub(super) fn is_receiving(&self) -> bool {
        self.transfers.iter().any(|transfer| matches!(transfer, Transfer::In { .. }))
    }
}

/// Sends a chunk if it is not empty; `None` where it is sent.
fn send(rows: &SyncSender<Vec<u8>>, chunk: &mut Vec<u8>) -> Option<Progress> {
    if chunk.is_empty() {
        return None;
    }
    match rows.try_send(std::mem::take(chunk)) {
        Ok(()) => None,
        Err(TrySendError::Full(kept)) => {
            *chunk = kept;
            Some(Progress::Waits)
        }
        // Nobody wants them any more.
        Err(TrySendError::Disconnected(_)) => Some(Progress::Ended(Ok(()))),
    }
}
