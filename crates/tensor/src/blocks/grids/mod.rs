//! Grids of the codebook types: short rows of digits that a stored index stands for. A digit names
//! a magnitude.
//!
//! Rows ascend as numbers do whose lowest digit is a row's first, so a grid is the set of its
//! numbers, and that is how it is written down: a bit for each number, four to a hexadecimal digit.
//! `tools/vectors/make_grids.py` writes the files.

pub(super) mod iq1;
pub(super) mod iq2;
pub(super) mod iq3;

/// The rows of a grid in digits of `base`. `members` holds number `4 k + b` where bit `b` of its
/// hexadecimal digit `k` is set.
const fn rows<const LEN: usize, const ROWS: usize>(base: usize, members: &str) -> [[u8; LEN]; ROWS] {
    let mut rows = [[0; LEN]; ROWS];
    let (mut found, mut number) = (0, 0);
    while number < 4 * members.len() {
        if hexadecimal(members.as_bytes()[number / 4]) >> (number % 4) & 1 == 1 {
            let (mut rest, mut place) = (number, 0);
            while place < LEN {
                rows[found][place] = (rest % base) as u8;
                rest /= base;
                place += 1;
            }
            found += 1;
        }
        number += 1;
    }
    assert!(found == ROWS, "a grid with another number of rows");
    rows
}

const fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

/// Signs of eight elements, one bit each, of which the last makes the number of set bits even.
pub(super) const fn even_signs(seven: u8) -> u8 {
    seven & 0x7f | ((seven & 0x7f).count_ones() as u8 & 1) << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum<const LEN: usize>(rows: &[[u8; LEN]]) -> u64 {
        let add = |sum: u64, &digit: &u8| (sum ^ u64::from(digit)).wrapping_mul(0x100_0000_01b3);
        rows.as_flattened().iter().fold(0xcbf2_9ce4_8422_2325, add)
    }

    #[test]
    fn grids_are_those_of_the_gguf_package() {
        assert_eq!(checksum(&iq1::IQ1_S), 0xec28_b636_8f0c_62e0);
        assert_eq!(checksum(&iq2::IQ2_XXS), 0xab05_d880_babe_6823);
        assert_eq!(checksum(&iq2::IQ2_XS), 0x6853_eeed_db7e_a013);
        assert_eq!(checksum(&iq2::IQ2_S), 0x2c19_55b6_2f3d_75bd);
        assert_eq!(checksum(&iq3::IQ3_XXS), 0xe94d_0633_d402_4cd5);
        assert_eq!(checksum(&iq3::IQ3_S), 0x5d10_ecbd_f51e_c43b);
    }

    #[test]
    fn the_eighth_sign_makes_an_even_number() {
        for seven in 0..128 {
            let signs = even_signs(seven);
            assert_eq!((signs & 0x7f, signs.count_ones() % 2), (seven, 0));
        }
    }
}
