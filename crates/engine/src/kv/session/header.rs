//! The header: everything but the rows.

use minfer_graph::{KvGroupSpec, KvSpec};

use super::codec::{Decoder, Encoder};
use super::{MOST_SEQUENCES, RowRun, SavedSequence, SessionError, SessionIdentity, rows_of};

/// A group of layers as far as rows depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupShape {
    layers: Vec<u32>,
    kv_heads: u32,
    k_dim: u32,
    v_dim: u32,
    /// 0 where there is none.
    window: u32,
    k_format: String,
    v_format: String,
}

impl GroupShape {
    fn of(group: &KvGroupSpec) -> GroupShape {
        GroupShape {
            layers: group.layers.clone(),
            kv_heads: group.kv_heads,
            k_dim: group.k_dim,
            v_dim: group.v_dim,
            window: group.window.unwrap_or(0),
            k_format: group.k_format.name().to_owned(),
            v_format: group.v_format.name().to_owned(),
        }
    }

    fn formats(&self) -> String {
        format!("{} and {}", self.k_format, self.v_format)
    }

    /// The same but for how rows are stored.
    fn is_alike(&self, other: &GroupShape) -> bool {
        let formats = (other.k_format.clone(), other.v_format.clone());
        GroupShape { k_format: formats.0, v_format: formats.1, ..self.clone() } == *other
    }
}

/// Everything but the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: SessionIdentity,
    pub(super) groups: Vec<GroupShape>,
    pub(super) sequences: Vec<SavedSequence>,
}

impl Header {
    pub(super) fn new(identity: SessionIdentity, spec: &KvSpec, sequences: Vec<SavedSequence>) -> Header {
        Header { identity, groups: spec.groups.iter().map(GroupShape::of).collect(), sequences }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u128(self.identity.model);
        out.u128(self.identity.template);
        out.list(&self.groups, |out, group| {
            out.list(&group.layers, |out, &layer| out.u32(layer));
            [group.kv_heads, group.k_dim, group.v_dim, group.window]
                .iter()
                .for_each(|&number| out.u32(number));
            out.bytes(group.k_format.as_bytes());
            out.bytes(group.v_format.as_bytes());
        });
        out.list(&self.sequences, |out, sequence| {
            out.list(&sequence.tokens, |out, &token| out.u32(token));
            out.list(&sequence.removed, |out, range| {
                out.u32(range.start);
                out.u32(range.end);
            });
            out.u32(sequence.length);
            out.list(&sequence.runs, |out, runs| {
                out.list(runs, |out, run| {
                    [run.start, run.rows, run.rope_offset].iter().for_each(|&number| out.u32(number));
                });
            });
            out.bytes(&sequence.host);
        });
        out.0
    }

    /// # Errors
    /// The bytes are no header, or its numbers contradict each other.
    pub(super) fn decode(bytes: &[u8]) -> Result<Header, SessionError> {
        let mut from = Decoder(bytes);
        let identity = SessionIdentity { model: from.u128()?, template: from.u128()? };
        let groups = from.list(|from| {
            Ok(GroupShape {
                layers: from.numbers()?,
                kv_heads: from.u32()?,
                k_dim: from.u32()?,
                v_dim: from.u32()?,
                window: from.u32()?,
                k_format: from.text()?,
                v_format: from.text()?,
            })
        })?;
        let sequences = from.list_of_at_most(MOST_SEQUENCES, |from| {
            Ok(SavedSequence {
                tokens: from.numbers()?,
                removed: from.list(|from| Ok(from.u32()?..from.u32()?))?,
                length: from.u32()?,
                runs: from.list(|from| from.list(run))?,
                host: from.bytes()?.to_vec(),
            })
        })?;
        if !from.0.is_empty() {
            return Err(SessionError::Contradiction("the header is longer than what it holds".to_owned()));
        }
        let header = Header { identity, groups, sequences };
        header.sequences.iter().try_for_each(|sequence| header.check_sequence(sequence))?;
        Ok(header)
    }

    /// What must hold between the numbers of a sequence.
    fn check_sequence(&self, sequence: &SavedSequence) -> Result<(), SessionError> {
        let contradiction = |text: String| Err(SessionError::Contradiction(text));
        let tokens = sequence.tokens.len() as u64;
        let (mut removed, mut last) = (0, 0);
        for range in &sequence.removed {
            if range.start < last || range.end <= range.start || u64::from(range.end) > tokens {
                return contradiction(format!("removed tokens {}..{}", range.start, range.end));
            }
            removed += u64::from(range.end - range.start);
            last = range.end;
        }
        if u64::from(sequence.length) + removed > tokens {
            return contradiction(format!("{} rows of {tokens} tokens", sequence.length));
        }
        if sequence.runs.len() != self.groups.len() {
            return contradiction(format!("rows of {} groups", sequence.runs.len()));
        }
        for (group, runs) in self.groups.iter().zip(&sequence.runs) {
            check_runs(group, runs, sequence.length, removed)?;
        }
        Ok(())
    }

    /// # Errors
    /// The file is of another model, template, shape or format.
    pub(super) fn check(&self, identity: SessionIdentity, spec: &KvSpec) -> Result<(), SessionError> {
        if self.identity.model != identity.model {
            return Err(SessionError::Model);
        }
        if self.identity.template != identity.template {
            return Err(SessionError::Template);
        }
        let wanted = Header::new(identity, spec, Vec::new()).groups;
        let alike = |(found, wanted): (&GroupShape, &GroupShape)| found.is_alike(wanted);
        if self.groups.len() != wanted.len() || !self.groups.iter().zip(&wanted).all(alike) {
            return Err(SessionError::Shape);
        }
        match self.groups.iter().zip(&wanted).find(|(found, wanted)| found != wanted) {
            Some((found, wanted)) => {
                Err(SessionError::Format { found: found.formats(), wanted: wanted.formats() })
            }
            None => Ok(()),
        }
    }
}

fn run(from: &mut Decoder<'_>) -> Result<RowRun, SessionError> {
    Ok(RowRun { start: from.u32()?, rows: from.u32()?, rope_offset: from.u32()? })
}

/// Runs follow one another inside the sequence, have moved no further than tokens were removed, and
/// hold every row that a later query of the group sees.
fn check_runs(group: &GroupShape, runs: &[RowRun], length: u32, removed: u64) -> Result<(), SessionError> {
    let mut last = 0;
    for run in runs {
        let end = run.start.checked_add(run.rows).filter(|&end| end <= length && run.rows > 0);
        match end.filter(|_| run.start >= last && u64::from(run.rope_offset) <= removed) {
            Some(end) => last = end,
            None => return Err(SessionError::Contradiction(format!("rows from {} on", run.start))),
        }
    }
    let seen = if group.window == 0 { length } else { length.min(group.window - 1) };
    let tail: u64 = runs
        .iter()
        .map(|run| u64::from((run.start + run.rows).saturating_sub(run.start.max(length - seen))))
        .sum();
    if tail < u64::from(seen) {
        let text = format!("{} rows of {length} positions", rows_of(runs));
        return Err(SessionError::Contradiction(text));
    }
    Ok(())
}
