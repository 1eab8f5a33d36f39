//! Counter-based random numbers: a draw depends on its key alone, never on earlier draws.
//!
//! Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3"
//! (2011). The key is the seed; the counter is (index of the generated token, index of the choice,
//! draw, 0).

use std::hash::{BuildHasher, Hasher};

/// A number uniform over u64.
pub fn draw(seed: u64, choice: u32, index: u32, draw: u32) -> u64 {
    let words = philox([index, choice, draw, 0], [seed as u32, (seed >> 32) as u32]);
    u64::from(words[1]) << 32 | u64::from(words[0])
}

/// A seed that differs from call to call and from run to run.
pub fn fresh_seed() -> u64 {
    // The standard library keys its hash tables from the operating system.
    std::hash::RandomState::new().build_hasher().finish()
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [a, b] = [(counter[0], 0xd251_1f53u32), (counter[2], 0xcd9e_8d57)]
            .map(|(word, factor)| u64::from(word) * u64::from(factor));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_the_authors() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let base = draw(1, 0, 0, 0);
        for other in
            [draw(2, 0, 0, 0), draw(1 << 32, 0, 0, 0), draw(1, 1, 0, 0), draw(1, 0, 1, 0), draw(1, 0, 0, 1)]
        {
            assert_ne!(base, other);
        }
        assert_eq!(base, draw(1, 0, 0, 0));
    }

    #[test]
    fn fresh_seeds_differ() {
        assert_ne!(fresh_seed(), fresh_seed());
    }
}
