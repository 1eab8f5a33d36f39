use std::collections::BTreeSet;

use minfer_graph::{KvFormat, KvLayout};
#[cfg(target_os = "linux")]
use minfer_testkit::residency::resident_bytes;

use super::*;
use crate::math::testing::Numbers;

fn group(layers: u32, kv_heads: u32, dim: u32, block_tokens: u32) -> KvGroupSpec {
    KvGroupSpec {
        layers: (0..layers).collect(),
        kv_heads,
        k_dim: dim,
        v_dim: dim,
        window: None,
        k_format: KvFormat::F16,
        v_format: KvFormat::F16,
        layout: KvLayout::LaneMajor,
        block_tokens,
    }
}

fn spec(groups: &[KvGroupSpec], blocks: u32) -> KvSpec {
    KvSpec { groups: groups.to_vec(), max_blocks: vec![blocks; groups.len()] }
}

fn memory(granule: KvGranule, keep_warm: u64) -> KvMemory {
    KvMemory { granule, limit: None, keep_warm }
}

/// Granules of some blocks of one group.
fn union(granule: u64, block_bytes: u64, blocks: impl IntoIterator<Item = u64>) -> u64 {
    let granules = |block: u64| block * block_bytes / granule..((block + 1) * block_bytes).div_ceil(granule);
    granule * blocks.into_iter().flat_map(granules).collect::<BTreeSet<_>>().len() as u64
}

/// Bytes of an arena that the operating system says are in memory.
#[cfg(target_os = "linux")]
fn resident(arena: &CpuArena) -> u64 {
    let addresses = (0..arena.groups.len()).filter_map(|group| arena.addresses(group));
    let bytes = addresses.map(|addresses| resident_bytes(addresses, pages::page_bytes()));
    bytes.sum::<std::io::Result<u64>>().expect("a table of pages")
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_counted_is_what_the_system_has() {
    // 12 288 bytes a token, and a second group of 1040 bytes a token whose blocks share pages.
    let spec = spec(&[group(24, 2, 64, 64), group(2, 1, 130, 64)], 64);
    let blocks = [spec.groups[0].bytes_per_block(), spec.groups[1].bytes_per_block()];
    assert_eq!(blocks, [786_432, 66_560]);
    for granule in [KvGranule::Page, KvGranule::Bytes(1 << 16), KvGranule::Bytes(2 << 20), KvGranule::Huge] {
        let mut arena = CpuArena::with_memory(&spec, memory(granule, 0)).unwrap();
        let granule_bytes = arena.memory().granule;
        let expected = |live: &BTreeSet<u64>| -> u64 {
            blocks.iter().map(|&bytes| union(granule_bytes, bytes, live.iter().copied())).sum()
        };
        assert_eq!((arena.committed_bytes(), resident(&arena)), (0, 0));
        let bases = [0, 1].map(|group| arena.groups[group].pages.as_mut_ptr());
        let mut live = BTreeSet::new();
        for tokens in [1, 63, 64, 65, 4096u64] {
            for block in live.len() as u64..tokens.div_ceil(64) {
                arena.commit(0, block as u32).unwrap();
                arena.commit(1, block as u32).unwrap();
                live.insert(block);
            }
            assert_eq!(arena.committed_bytes(), expected(&live), "{granule:?}, {tokens} tokens");
            assert_eq!(resident(&arena), arena.committed_bytes(), "{granule:?}, {tokens} tokens");
        }
        assert_eq!([0, 1].map(|group| arena.groups[group].pages.as_mut_ptr()), bases, "growth moves nothing");

        // Every third block stays; then they move to the lowest numbers.
        for block in (0..64).filter(|block| block % 3 != 0) {
            arena.release(0, block);
            arena.release(1, block);
            live.remove(&u64::from(block));
        }
        assert_eq!((arena.committed_bytes(), resident(&arena)), (expected(&live), expected(&live)));
        for (from, to) in (1..22).map(|index| (3 * index, index)) {
            for group in [0, 1] {
                arena.commit(group, to).unwrap();
                arena.copy_rows(group, from, to, 0..2).unwrap();
                arena.release(group, from);
            }
            live.remove(&u64::from(from));
            live.insert(u64::from(to));
        }
        assert_eq!(live, (0..22).collect());
        assert_eq!((arena.committed_bytes(), resident(&arena)), (expected(&live), expected(&live)));
        for &block in &live {
            arena.release(0, block as u32);
            arena.release(1, block as u32);
        }
        assert_eq!((arena.memory().committed, arena.memory().warm, resident(&arena)), (0, 0, 0));
    }
}

/// Blocks come and go; the counts are those of the formula, and nothing passes its bound.
#[test]
fn counts_follow_the_union_of_granules() {
    // Several blocks in a granule, and blocks across two.
    for (dim, granule, keep_warm, limit) in [
        (24, KvGranule::Page, 0, None),
        (24, KvGranule::Page, 8192, None),
        (24, KvGranule::Bytes(16384), 1 << 20, Some(65536)),
        (200, KvGranule::Page, 40960, Some(409_600)),
    ] {
        let spec = spec(&[group(1, 1, dim, 16), group(2, 1, dim, 16)], 40);
        let memory = KvMemory { granule, limit, keep_warm };
        let mut arena = CpuArena::with_memory(&spec, memory).unwrap();
        let bytes = arena.memory().granule;
        let mut live = [[false; 40]; 2];
        let mut numbers = Numbers(3);
        let mut refused = 0;
        let count = |live: &[[bool; 40]; 2]| -> u64 {
            let of = |index: usize| {
                let blocks = (0..40).filter(move |&block| live[index][block as usize]);
                union(bytes, spec.groups[index].bytes_per_block(), blocks)
            };
            of(0) + of(1)
        };
        for _ in 0..800 {
            let (group, block) = (numbers.below(2), numbers.below(40));
            let before = arena.memory();
            if live[group][block] {
                arena.release(group, block as u32);
                live[group][block] = false;
            } else {
                let mut wanted = live;
                wanted[group][block] = true;
                match arena.commit(group, block as u32) {
                    Ok(()) => live = wanted,
                    Err(BackendError::OverKvLimit { limit, committed, wanted: more }) => {
                        assert_eq!((committed, committed + more), (count(&live), count(&wanted)));
                        assert!(committed + more > limit);
                        assert_eq!(arena.memory(), before, "a refusal changes nothing");
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            let now = arena.memory();
            assert_eq!(now.committed, count(&live));
            assert!(now.warm <= keep_warm, "{now:?}");
            assert!(limit.is_none_or(|limit| now.committed + now.warm <= limit), "{now:?}");
            #[cfg(target_os = "linux")]
            assert_eq!(resident(&arena), now.committed + now.warm);
        }
        assert_eq!(refused > 0, limit.is_some(), "{refused} refusals");
    }
}

#[test]
fn what_stays_warm_is_taken_first_and_gives_way() {
    let spec = spec(&[group(1, 1, 64, 16)], 8);
    assert_eq!(spec.groups[0].bytes_per_block(), 4096);
    let memory = KvMemory { granule: KvGranule::Page, limit: Some(4 * 4096), keep_warm: 3 * 4096 };
    let mut arena = CpuArena::with_memory(&spec, memory).unwrap();
    (0..4).for_each(|block| arena.commit(0, block).unwrap());
    (0..4).for_each(|block| arena.release(0, block));
    let sizes = |arena: &CpuArena| (arena.memory().committed / 4096, arena.memory().warm / 4096);
    assert_eq!(sizes(&arena), (0, 3), "the highest number is given back");
    arena.commit(0, 1).unwrap();
    assert_eq!(sizes(&arena), (1, 2));
    (4..7).for_each(|block| arena.commit(0, block).unwrap());
    assert_eq!(sizes(&arena), (4, 0), "warm memory is no reason for a refusal");
    let refused = arena.commit(0, 7).unwrap_err();
    assert_eq!(refused, BackendError::OverKvLimit { limit: 16384, committed: 16384, wanted: 4096 });
    assert_eq!(
        refused.to_string(),
        "the KV cache may hold 16384 bytes, 16384 are in use and 4096 more are wanted"
    );
    arena.release(0, 4);
    arena.commit(0, 7).unwrap();
}

/// In builds that check, a block holds no numbers until rows are stored, whether its memory is new
/// or was used before.
#[test]
fn a_committed_block_holds_nothing_of_use() {
    let spec = spec(&[group(1, 1, 24, 16)], 3);
    let mut arena = CpuArena::new(&spec).unwrap();
    for _ in 0..2 {
        (0..3).for_each(|block| arena.commit(0, block).unwrap());
        let poisoned = arena.groups[0].block_mut(1).iter().all(|&byte| byte == POISON);
        assert_eq!(poisoned, cfg!(debug_assertions));
        arena.groups[0].block_mut(1).fill(0);
        (0..3).for_each(|block| arena.release(0, block));
    }
}

/// The system refuses pages that may not be written: as when it has no memory, the block is as it
/// was.
#[cfg(target_os = "linux")]
#[test]
fn a_refused_population_changes_nothing() {
    let spec = spec(&[group(1, 1, 100, 16)], 6);
    let bytes = spec.groups[0].bytes_per_block();
    assert_eq!(bytes, 6400, "blocks share pages");
    let mut arena = CpuArena::with_memory(&spec, memory(KvGranule::Page, 0)).unwrap();
    if !arena.groups[0].pages.populates() {
        println!("skipped: this kernel does not populate on demand");
        return;
    }
    arena.commit(0, 0).unwrap();
    let before = (arena.memory(), resident(&arena));
    let page = pages::page_bytes();
    let protect = |arena: &CpuArena, rights| {
        // SAFETY: the page is inside the arena's mapping, and nothing is read or written while it
        // is forbidden.
        let result =
            unsafe { libc::mprotect(arena.groups[0].pages.as_mut_ptr().add(2 * page).cast(), page, rights) };
        assert_eq!(result, 0);
    };
    protect(&arena, libc::PROT_NONE);
    let error = arena.commit(0, 1).unwrap_err();
    let BackendError::OutOfMemory { what, bytes } = &error else { panic!("{error}") };
    assert!(what.starts_with("a block of the KV cache (") && *bytes == 2 * page as u64, "{error}");
    assert_eq!((arena.memory(), resident(&arena)), before);
    protect(&arena, libc::PROT_READ | libc::PROT_WRITE);
    arena.commit(0, 1).unwrap();
    assert_eq!(arena.committed_bytes(), 4 * page as u64);
}

#[test]
fn addresses_that_do_not_exist_are_refused() {
    let mut spec = spec(&[group(1, 1, 24, 16)], u32::MAX);
    spec.groups[0].kv_heads = u32::MAX;
    assert!(matches!(CpuArena::new(&spec), Err(BackendError::NoAddresses { .. })));
    spec.groups[0].kv_heads = 1 << 12;
    // More than the addresses of a process, less than a machine word counts.
    assert!(matches!(CpuArena::new(&spec), Err(BackendError::NoAddresses { .. })));
}

#[test]
fn odd_granules_are_refused() {
    for bytes in [0, 1, 1000, 2048, 4096 * 3] {
        let spec = spec(&[group(1, 1, 24, 16)], 1);
        let error = CpuArena::with_memory(&spec, memory(KvGranule::Bytes(bytes), 0)).unwrap_err();
        assert!(matches!(error, BackendError::BadGranule { .. }), "{error}");
    }
}
