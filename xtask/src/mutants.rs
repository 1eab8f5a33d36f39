//! `cargo xtask mutants`: mutation testing. Breaks one named line at a time; a test must fail.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// Break named lines of the code, one at a time, and see a test fail for each.
///
/// Works on a copy of the tracked files under target/mutants. A mutation is caught where the code
/// still builds and the tests of its packages fail.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only mutations whose names contain this
    filter: Option<String>,

    /// List the mutations
    #[arg(long)]
    list: bool,
}

/// One broken line.
struct Mutation {
    name: &'static str,
    file: &'static str,
    /// Found exactly once.
    line: &'static str,
    broken: &'static str,
    /// Arguments of `cargo test`.
    test: &'static [&'static str],
}

const CPU: &[&str] = &["--package", "minfer-cpu", "--lib"];
const MODELS: &[&str] = &["--package", "minfer-models"];
const KV: &[&str] = &["--package", "minfer-engine", "--lib", "kv::"];

const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "drop a block's scale",
        file: "crates/cpu/src/ops/linear/rule.rs",
        line: "let sum = simd.fma(simd.to_f32(dots), simd.mul(terms[0], scale), sum);\n        simd.fma(",
        broken: "let sum = simd.fma(simd.to_f32(dots), scale, sum);\n        simd.fma(",
        test: CPU,
    },
    Mutation {
        name: "let two rows of a batch go to one cell",
        file: "crates/cpu/src/backend/check.rs",
        line: "pair[0] == pair[1]",
        broken: "pair[0] > pair[1]",
        test: CPU,
    },
    Mutation {
        name: "let a step write what another worker reads",
        file: "crates/cpu/src/backend/schedule.rs",
        line: "overlap == Overlap::Apart || (in_place",
        broken: "overlap != Overlap::OtherRows || (in_place",
        test: CPU,
    },
    Mutation {
        name: "swap two rows of a panel",
        file: "crates/cpu/src/pack/format.rs",
        line: "vector.as_chunks_mut::<4>().0[lane] = word.to_le_bytes();",
        broken: "vector.as_chunks_mut::<4>().0[if lane < 2 { 1 - lane } else { lane }] = word.to_le_bytes();",
        test: CPU,
    },
    Mutation {
        name: "off by one in the causal mask",
        file: "crates/cpu/src/ops/attention/mod.rs",
        line: "Mask::Causal => 0..end,",
        broken: "Mask::Causal => 0..(end + 1).min(length as usize),",
        test: CPU,
    },
    Mutation {
        name: "rope pairs interleaved instead of halves",
        file: "crates/cpu/src/ops/rope.rs",
        line: "RopePairs::Halves => rotate_halves(simd, cosines, sines, rotated),",
        broken: "RopePairs::Halves => rotate_adjacent(simd, cosines, sines, rotated),",
        test: CPU,
    },
    Mutation {
        name: "tiles folded out of order",
        file: "crates/cpu/src/ops/attention/driver.rs",
        line: "for start in (first..last).step_by(TILE) {",
        broken: "for start in (first..last).step_by(TILE).rev() {",
        test: &["--package", "minfer", "--test", "bits"],
    },
    Mutation {
        name: "epsilon of a norm forgotten",
        file: "crates/cpu/src/ops/norm.rs",
        line: "(mean, 1.0 / (variance + spec.eps.get()).sqrt())",
        broken: "(mean, 1.0 / variance.sqrt())",
        test: CPU,
    },
    Mutation {
        name: "window of a layer ignored",
        file: "crates/models/src/blocks/attention.rs",
        line: "mask: numbers.attention.window_of(layer).map_or(Mask::Causal, Mask::Window),",
        broken: "mask: Mask::Causal,",
        test: MODELS,
    },
    Mutation {
        name: "window of a query ignored",
        file: "crates/cpu/src/ops/attention/mod.rs",
        line: "Mask::Window(n) => end.saturating_sub(n as usize)..end,",
        broken: "Mask::Window(_) => 0..end,",
        test: CPU,
    },
    Mutation {
        name: "rotation of a layer that has none",
        file: "crates/models/src/hyperparams/mod.rs",
        line: "self.attention.rotated.contains(layer).then(|| local.unwrap_or(&self.rope))",
        broken: "Some(local.unwrap_or(&self.rope))",
        test: MODELS,
    },
    Mutation {
        name: "soft cap of scores dropped",
        file: "crates/models/src/blocks/attention.rs",
        line: "softcap: numbers.attention.softcap.map(Into::into),",
        broken: "softcap: None,",
        test: MODELS,
    },
    Mutation {
        name: "soft cap of logits dropped",
        file: "crates/models/src/blocks/head.rs",
        line: "Some(cap) => scope.graph.soft_cap(logits, cap),",
        broken: "Some(_) => logits,",
        test: MODELS,
    },
    Mutation {
        name: "long and short rope factors swapped",
        file: "crates/models/src/hyperparams/rope.rs",
        line: "let chosen = if n_ctx > self.original_context { long } else { short };",
        broken: "let chosen = if n_ctx > self.original_context { short } else { long };",
        test: MODELS,
    },
    Mutation {
        name: "what was read of a header is taken for the whole file",
        file: "crates/formats/src/gguf/cursor.rs",
        line: "self.length - self.offset()",
        broken: "self.bytes.len() as u64 - self.offset()",
        test: &["--package", "minfer-formats"],
    },
    Mutation {
        name: "a model file that was written to is run",
        file: "crates/minfer/src/load.rs",
        line: "file.gguf().check_unchanged()?;",
        broken: "",
        test: &["--package", "minfer", "--test", "changed_files"],
    },
    Mutation {
        name: "kv: the sum of a session file is not checked",
        file: "crates/engine/src/kv/session/file.rs",
        line: "if u64::from_le_bytes(written) != sum.digest() {",
        broken: "if written.is_empty() {",
        test: KV,
    },
    Mutation {
        name: "kv: rows that follow what was forgotten stand for another beginning",
        file: "crates/engine/src/history.rs",
        line: "if equal >= forgotten { equal as u32 } else { 0 }",
        broken: "if equal >= forgotten { equal as u32 } else { equal as u32 }",
        test: &["--package", "minfer-engine", "--lib", "history"],
    },
    Mutation {
        name: "kv: a preempted sequence that has forgotten is computed again",
        file: "crates/engine/src/worker/preempt.rs",
        line: "let recomputable = |other: &usize| !self.store.is_shifted(self.running[*other].kv());",
        broken: "let recomputable = |other: &usize| self.running[*other].fed > 0;",
        test: &["--package", "minfer-engine", "--lib", "worker"],
    },
    Mutation {
        name: "kv: quantised keys are read without what repays their offset",
        file: "crates/cpu/src/ops/attention/quantised.rs",
        line: "dots[r] = [simd.splat_i32(queries[r].starts[block]); V];",
        broken: "dots[r] = [simd.splat_i32(0); V];",
        test: CPU,
    },
    Mutation {
        name: "kv: the high nibbles of keys meet the dims of the low ones",
        file: "crates/cpu/src/ops/attention/quantised.rs",
        line: "simd.dot4(dots[r][v], high, query[W + word]);",
        broken: "simd.dot4(dots[r][v], high, query[word]);",
        test: CPU,
    },
    Mutation {
        name: "kv: the scale of a quantised key is that of another position",
        file: "crates/cpu/src/ops/attention/quantised/cells.rs",
        line: "scales[block * TILE + rows..][..count]",
        broken: "scales[block * TILE + rows / 2..][..count]",
        test: CPU,
    },
    Mutation {
        name: "kv: an owner is not counted",
        file: "crates/engine/src/kv/store.rs",
        line: "table.blocks().into_iter().for_each(|block| group.pool.share(block));",
        broken: "table.blocks().into_iter().skip(1).for_each(|block| group.pool.share(block));",
        test: KV,
    },
    Mutation {
        name: "kv: a row is written through a share",
        file: "crates/engine/src/kv/prepare.rs",
        line: "copied: pool.owners(block) > 1 || (overwrites && room)",
        broken: "copied: overwrites && room",
        test: KV,
    },
    Mutation {
        name: "kv: a named block is overwritten",
        file: "crates/engine/src/kv/prepare.rs",
        line: "Some(tail) => self.forget(group, tail.block),",
        broken: "Some(_) => (),",
        test: KV,
    },
    Mutation {
        name: "kv: a release is forgotten",
        file: "crates/engine/src/kv/store.rs",
        line: "if self.groups[group].pool.give(block, self.clock) {",
        broken: "if self.groups[group].pool.give(block, self.clock) && block != 1 {",
        test: KV,
    },
    Mutation {
        name: "kv: a commit is not released after a refusal",
        file: "crates/engine/src/kv/prepare.rs",
        line: "self.release_all(arena, taken);\n                        return Err(StoreError::Refused { sequence, from, to, source });",
        broken: "return Err(StoreError::Refused { sequence, from, to, source });",
        test: KV,
    },
    Mutation {
        name: "kv: off by one in the window",
        file: "crates/engine/src/kv/window.rs",
        line: "(cached + 1).saturating_sub(window.max(2))",
        broken: "(cached + 2).saturating_sub(window.max(2))",
        test: KV,
    },
    Mutation {
        name: "kv: no rope offset",
        file: "crates/engine/src/kv/table.rs",
        line: "_ => (run.offset + skipped, run.rope_offset + removed),",
        broken: "_ => (run.offset + skipped, run.rope_offset),",
        test: KV,
    },
    Mutation {
        name: "kv: published before success",
        file: "crates/engine/src/kv/prepare.rs",
        line: "self.sequence_mut(id).tokens.extend_from_slice(tokens);\n        Ok(())",
        broken: "self.sequence_mut(id).tokens.extend_from_slice(tokens);\n        self.name_filled(id, from);\n        Ok(())",
        test: KV,
    },
    Mutation {
        name: "kv: a match by hash alone",
        file: "crates/engine/src/kv/prefix.rs",
        line: "node.parent == parent && *node.ids == *ids",
        broken: "node.parent.is_some() == parent.is_some() && node.ids.len() == ids.len()",
        test: KV,
    },
    Mutation {
        name: "kv: the window rule of a hit ignored",
        file: "crates/engine/src/kv/reuse.rs",
        line: "let needed = first_seen(group.window, length) / block_tokens..length.div_ceil(block_tokens);",
        broken: "let needed = if group.window.is_some() { 0..0 } else { 0..length.div_ceil(block_tokens) };",
        test: KV,
    },
    Mutation {
        name: "kv: shared blocks not recounted",
        file: "crates/engine/src/kv/blocks.rs",
        line: "        self.shared -= u32::from(*owners == 1);\n",
        broken: "",
        test: KV,
    },
    Mutation {
        name: "kv: rows of a shifted sequence are named",
        file: "crates/engine/src/kv/prefix_index.rs",
        line: "if !self.cache || sequence.shifted {",
        broken: "if !self.cache {",
        test: KV,
    },
    Mutation {
        name: "kv: rows of another salt are taken",
        file: "crates/engine/src/kv/prefix_index.rs",
        line: "root_words(self.fingerprint, salt)",
        broken: "root_words(self.fingerprint, salt.and(None))",
        test: KV,
    },
    Mutation {
        name: "kv: a cut into rows that are given back",
        file: "crates/engine/src/kv/store.rs",
        line: "        self.check_sight(id, length, &sequence.tables)?;\n",
        broken: "",
        test: KV,
    },
    Mutation {
        name: "kv: a move forgets the name",
        file: "crates/engine/src/kv/compact.rs",
        line: "self.index.tree_mut(*block_tokens).rename(name.node, group, from, to);",
        broken: "let _ = (name, block_tokens);",
        test: KV,
    },
    Mutation {
        name: "kv: the block evicted last goes first",
        file: "crates/engine/src/kv/blocks.rs",
        line: "self.cached.first_key_value()",
        broken: "self.cached.last_key_value()",
        test: KV,
    },
];

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<&Mutation> = MUTATIONS
        .iter()
        .filter(|mutation| args.filter.as_deref().is_none_or(|filter| mutation.name.contains(filter)))
        .collect();
    ensure!(!chosen.is_empty(), "no mutation has such a name");
    if args.list {
        chosen.iter().for_each(|mutation| println!("{:44} {}", mutation.name, mutation.file));
        return Ok(());
    }
    let tree = copy_tree()?;
    let mut survivors = Vec::new();
    for mutation in &chosen {
        let caught = try_mutation(&tree, mutation)?;
        println!("{} {}", if caught { "caught:  " } else { "SURVIVED:" }, mutation.name);
        if !caught {
            survivors.push(mutation.name);
        }
    }
    println!("{} of {} caught", chosen.len() - survivors.len(), chosen.len());
    if survivors.is_empty() { Ok(()) } else { bail!("not caught: {}", survivors.join(", ")) }
}

/// Copies the tracked files as they are in the working tree.
fn copy_tree() -> Result<PathBuf> {
    let tree = workspace::target_dir()?.join("mutants/tree");
    let listing = workspace::output(Command::new("git").arg("ls-files").current_dir(workspace::root()))?;
    for name in listing.lines() {
        let (from, to) = (workspace::root().join(name), tree.join(name));
        if !from.exists() {
            continue;
        }
        let text = std::fs::read(&from).with_context(|| from.display().to_string())?;
        write_if_changed(&to, &text)?;
    }
    Ok(tree)
}

/// Leaves a file alone whose contents are the same, so that cargo does not build it again.
fn write_if_changed(path: &Path, contents: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, contents).with_context(|| path.display().to_string())
}

fn try_mutation(tree: &Path, mutation: &Mutation) -> Result<bool> {
    let path = tree.join(mutation.file);
    let whole = std::fs::read_to_string(&path).with_context(|| mutation.file.to_owned())?;
    let broken = mutate(&whole, mutation)?;
    std::fs::write(&path, broken)?;
    let outcome = test_fails(tree, mutation);
    std::fs::write(&path, whole)?;
    outcome
}

fn mutate(whole: &str, mutation: &Mutation) -> Result<String> {
    let count = whole.matches(mutation.line).count();
    ensure!(count == 1, "{}: the line of \"{}\" is there {count} times", mutation.file, mutation.name);
    Ok(whole.replacen(mutation.line, mutation.broken, 1))
}

/// Whether the broken code builds and its tests fail.
fn test_fails(tree: &Path, mutation: &Mutation) -> Result<bool> {
    let cargo = |extra: &[&str]| {
        let mut command = workspace::cargo();
        command
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", tree.join("../build"))
            .env_remove("MINFER_TEST_MODELS");
        command.arg("test").args(mutation.test).args(extra).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().context("cannot run cargo")
    };
    ensure!(cargo(&["--no-run"])?.success(), "\"{}\" does not build", mutation.name);
    Ok(!cargo(&[])?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_finds_its_line() {
        for mutation in MUTATIONS {
            let whole = std::fs::read_to_string(workspace::root().join(mutation.file)).expect(mutation.file);
            let broken = mutate(&whole, mutation).expect(mutation.name);
            assert_ne!(whole, broken, "{}", mutation.name);
        }
    }
}
