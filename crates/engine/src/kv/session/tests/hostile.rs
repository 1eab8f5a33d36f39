//! Files as somebody makes them who means harm: any header behind right sums.

use std::path::Path;

use super::{
    KvArena, KvSpec, SESSION_VERSION, SessionError, SessionFile, SessionIdentity, Store, StoreOptions,
    xxh3_64,
};

/// A file around a header and rows.
pub(crate) fn file_around(header: &[u8], rows: &[u8]) -> Vec<u8> {
    let mut bytes = b"MINFSESS".to_vec();
    bytes.extend(SESSION_VERSION.to_le_bytes());
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((24 + header.len() as u64 + 8 + rows.len() as u64 + 8).to_le_bytes());
    bytes.extend(header);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes.extend(rows);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// Does with a file what an engine does: reads it, makes room for each of its sequences and fills it.
pub(crate) fn take(
    path: &Path,
    identity: SessionIdentity,
    spec: &KvSpec,
    arena: &mut dyn KvArena,
) -> Result<(), SessionError> {
    let file = SessionFile::open(path)?;
    file.check(identity, spec)?;
    for (index, sequence) in file.sequences().iter().enumerate() {
        let mut store = Store::new(spec, StoreOptions::default());
        let id = store.restore(arena, sequence.shape(), None)?;
        file.fill(index, &mut store, arena, id)?;
        assert_eq!(store.length(id), sequence.length);
        assert_eq!(store.tokens(id), sequence.shape().tokens);
        store.drop_sequence(arena, id);
    }
    Ok(())
}
