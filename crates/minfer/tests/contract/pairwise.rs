//! Pairwise selection: few variants in which every pair of values of two factors occurs.
//!
//! A fault of batching, placement or arithmetic nearly always needs one value of one factor, or two
//! of two. A greedy choice covers all pairs of a product of 2592 variants with some thirty of them.

use std::collections::HashSet;

use crate::variant::Variant;

/// Two factors, by index, and a value of each.
type Pair = (usize, usize, String, String);

/// Variants of `product` that together have every pair which the product has, best first.
pub(crate) fn pairwise(product: &[Variant]) -> Vec<Variant> {
    let pairs: Vec<HashSet<Pair>> = product.iter().map(pairs_of).collect();
    let mut missing: HashSet<Pair> = pairs.iter().flatten().cloned().collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let gain = |&index: &usize| pairs[index].iter().filter(|pair| missing.contains(pair)).count();
        // Of equals the last is taken: neighbours in the product differ in one factor only.
        let best = (0..product.len()).max_by_key(gain).expect("a product with pairs has variants");
        missing.retain(|pair| !pairs[best].contains(pair));
        chosen.push(product[best]);
    }
    chosen
}

fn pairs_of(variant: &Variant) -> HashSet<Pair> {
    let values = variant.values();
    let mut pairs = HashSet::new();
    for first in 0..values.len() {
        for second in first + 1..values.len() {
            pairs.insert((first, second, values[first].clone(), values[second].clone()));
        }
    }
    pairs
}

#[test]
fn every_pair_of_the_product_is_chosen() {
    let product = crate::product(&minfer::cpu::Isa::available().collect::<Vec<_>>(), &[1, 7, 512]);
    let chosen = pairwise(&product);
    let missed = product.iter().flat_map(pairs_of).find(|pair| {
        let (first, second, one, other) = pair;
        !chosen.iter().any(|variant| {
            let values = variant.values();
            values[*first] == *one && values[*second] == *other
        })
    });
    assert_eq!(missed, None);
    assert!(chosen.len() * 20 < product.len(), "{} of {}", chosen.len(), product.len());
}
