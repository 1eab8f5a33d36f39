//! Files as somebody makes them who means harm: any header behind right sums.

use std::path::Path;

use super::{
    KvArena, KvFormat, KvGroupSpec, KvLayout, KvSpec, SESSION_VERSION, SessionError, SessionFile,
    SessionIdentity, Store, StoreOptions, xxh3_64,
};

pub(crate) const IDENTITY: SessionIdentity = SessionIdentity { model: 7, template: 9 };

/// A full group of layers 0 and 2 and a window group of layer 1.
pub(crate) fn spec(block_tokens: u32) -> KvSpec {
    let group = |layers: &[u32], window| KvGroupSpec {
        layers: layers.to_vec(),
        kv_heads: 1,
        k_dim: 2,
        v_dim: 4,
        window,
        k_format: KvFormat::F16,
        v_format: KvFormat::F32,
        layout: KvLayout::LaneMajor,
        block_tokens,
    };
    KvSpec { groups: vec![group(&[0, 2], None), group(&[1], Some(20))], max_blocks: vec![8, 8] }
}

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
    let file = file.verify()?;
    for (index, sequence) in file.sequences().iter().enumerate() {
        let mut store = Store::new(spec, StoreOptions::default());
        let id = store.restore(arena, sequence.layout(), None)?;
        file.fill(index, &mut store, arena, id)?;
        assert_eq!(store.length(id), sequence.length);
        assert_eq!(store.tokens(id), sequence.layout().tokens);
        store.drop_sequence(arena, id);
    }
    Ok(())
}
