//! Slots: the places of running requests, and the conversations that last ran in them.

use crate::kv::session::SessionError;

/// What is known of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotInfo {
    /// Its number, from 0 on.
    pub slot: usize,
    /// A request runs in it.
    pub is_running: bool,
    /// Tokens of the request that runs in it, or of the last one.
    pub tokens: u32,
    /// Tokens that the running request has generated.
    pub generated: u32,
}

/// What a file of slots has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotTransfer {
    /// Conversations.
    pub slots: usize,
    /// Their tokens with rows.
    pub tokens: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The caller's bytes of a sequence in a file of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotTag {
    pub(crate) slot: u32,
    /// The salt of the rows: they serve the same clients again.
    pub(crate) salt: Option<u64>,
}

const TAG: &[u8; 5] = b"slot ";

impl SlotTag {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = TAG.to_vec();
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend(self.salt.iter().flat_map(|salt| salt.to_le_bytes()));
        bytes
    }

    /// # Errors
    /// They are another kind of file's.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<SlotTag, SessionError> {
        let foreign = || SessionError::Contradiction("it holds no slots of a server".to_owned());
        let rest = bytes.strip_prefix(TAG).ok_or_else(foreign)?;
        let (slot, salt) = rest.split_first_chunk().ok_or_else(foreign)?;
        let salt = match salt {
            [] => None,
            salt => Some(u64::from_le_bytes(salt.try_into().map_err(|_| foreign())?)),
        };
        Ok(SlotTag { slot: u32::from_le_bytes(*slot), salt })
    }
}
