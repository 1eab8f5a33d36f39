//! `cargo xtask compare`: measures minfer and llama.cpp on the same file in interleaved rounds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use minfer_hub::{Resolution, resolve};

use crate::peer::Peer;
use crate::spec::{Kind, Spec, Want};
use crate::{models, workspace};

/// Relative difference allowed between `minfer bench` and the time measured from outside.
const CLOCK_TOLERANCE: f64 = 0.15;

/// Seconds by which the longer of two runs exceeds the shorter, so that start-up does not matter.
const SEEN_SECONDS: f64 = 1.5;

/// Measure minfer and llama.cpp side by side on one model.
///
/// The two take turns, round by round, so that a machine that slows down slows both; the median of
/// the rounds' ratios is told. Generation, which swings with the machine's memory, gets twice the
/// rounds. Our own figure is checked from outside: the time of a longer run less the time of a
/// shorter one must agree within 15 %.
///
/// llama.cpp comes as the Python package llama-cpp-python, in an environment made once under
/// target/ (minutes).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path to a .gguf file, or a name that `minfer pull` takes
    model: String,

    /// What to measure: ppN (prefill), tgN (generate), tgN@D (after D cached tokens)
    #[arg(long, value_delimiter = ',', default_value = "pp512,tg128", value_name = "TEST,...")]
    tests: Vec<Spec>,

    /// What must be reached: TEST=RATIO, or TEST=RATIO|SHARE where a share of the machine's limit
    /// will do; a miss exits 1
    #[arg(long, value_delimiter = ',', value_name = "WANT,...")]
    want: Vec<Want>,

    /// Rounds of a prefill test
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Repetitions within a round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    reps: u32,

    /// Threads of both [default: all processors]
    #[arg(short, long)]
    threads: Option<usize>,

    /// Take our figure as it is
    #[arg(long)]
    no_clock_check: bool,

    /// A minfer binary [default: built from this tree]
    #[arg(long, value_name = "FILE")]
    minfer: Option<PathBuf>,

    /// A Python that has llama-cpp-python [default: an environment under target/]
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(want) = args.want.iter().find(|want| !args.tests.contains(&want.spec)) {
        bail!("{} is wanted and not measured: add it to --tests", want.spec);
    }
    let race = Race::prepare(args)?;
    let mut missed = Vec::new();
    for spec in &args.tests {
        if !race.test(*spec)? {
            missed.push(spec.to_string());
        }
    }
    ensure!(missed.is_empty(), "not good enough: {}", missed.join(", "));
    Ok(())
}

/// All that a comparison needs.
struct Race<'a> {
    args: &'a Args,
    model: PathBuf,
    minfer: PathBuf,
    peer: Peer,
    threads: usize,
}

/// Speeds of one round in tokens per second, and ours as a share of the machine's limit.
#[derive(Clone, Copy)]
struct Round {
    ours: f64,
    theirs: f64,
    share: f64,
}

impl<'a> Race<'a> {
    fn prepare(args: &'a Args) -> Result<Self> {
        let threads = args
            .threads
            .map_or_else(std::thread::available_parallelism, |n| n.try_into().map_err(std::io::Error::other));
        Ok(Self {
            args,
            model: model_path(&args.model)?,
            minfer: args.minfer.clone().map_or_else(workspace::release_binary, Ok)?,
            peer: args.peer.as_deref().map_or_else(Peer::make, |python| Ok(Peer::at(python)))?,
            threads: threads.context("how many threads?")?.get(),
        })
    }

    /// Measures one test and tells it; says whether what is wanted was reached.
    fn test(&self, spec: Spec) -> Result<bool> {
        let count = match spec.kind {
            Kind::Prefill => self.args.rounds,
            Kind::Decode => 2 * self.args.rounds + 1,
        };
        let rounds = (0..count).map(|number| self.round(spec, number)).collect::<Result<Vec<_>>>()?;
        let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        let (ours, share) = (middle(|r| r.ours), middle(|r| r.share));
        let (theirs, ratio) = (middle(|r| r.theirs), middle(|r| r.ours / r.theirs));
        println!(
            "{spec}: minfer {ours:.1} tok/s ({share:.2} of the limit), llama.cpp {theirs:.1} tok/s, ratio {ratio:.2}"
        );
        let reached = self.args.want.iter().filter(|want| want.spec == spec).all(|want| {
            let reached = want.reached(ratio, share);
            println!("{spec}: wanted {want}: {}", if reached { "reached" } else { "missed" });
            reached
        });
        Ok(reached & (self.args.no_clock_check || spec.depth > 0 || self.clock_agrees(spec, ours)?))
    }

    /// One run of each, the first now this one and now that one.
    fn round(&self, spec: Spec, number: u32) -> Result<Round> {
        let peer = || self.peer.speed(&self.model, spec, self.args.reps, self.threads);
        let (theirs, (ours, share)) = if number.is_multiple_of(2) {
            let ours = self.bench(spec, self.args.reps)?;
            (peer()?, ours)
        } else {
            (peer()?, self.bench(spec, self.args.reps)?)
        };
        Ok(Round { ours, theirs, share })
    }

    /// Our speed and its share of the machine's limit.
    fn bench(&self, spec: Spec, reps: u32) -> Result<(f64, f64)> {
        let (prompt, generated) = match spec.kind {
            Kind::Prefill => (spec.tokens, 0),
            Kind::Decode => (0, spec.tokens),
        };
        let mut command = Command::new(&self.minfer);
        command.arg("bench").arg(&self.model);
        command.args([
            "-p",
            &prompt.to_string(),
            "-n",
            &generated.to_string(),
            "-d",
            &spec.depth.to_string(),
        ]);
        command.args(["-r", &reps.to_string(), "-t", &self.threads.to_string(), "-o", "json"]);
        row(&workspace::output(&mut command)?, spec)
    }

    /// Compares our figure with the time, taken outside, of more repetitions: four at least, and
    /// enough to be seen.
    fn clock_agrees(&self, spec: Spec, ours: f64) -> Result<bool> {
        let time = |reps| {
            let start = Instant::now();
            self.bench(spec, reps).map(|_| start.elapsed().as_secs_f64())
        };
        let more = (SEEN_SECONDS * ours / f64::from(spec.tokens)).ceil().clamp(4.0, 64.0) as u32;
        let (short, long) = (time(1)?, time(1 + more)?);
        let outside = f64::from(more) * f64::from(spec.tokens) / (long - short).max(1e-9);
        let agrees = (outside / ours - 1.0).abs() <= CLOCK_TOLERANCE;
        if !agrees {
            println!("{spec}: from outside {outside:.1} tok/s: the figures disagree");
        }
        Ok(agrees)
    }
}

/// The file that a MODEL argument stands for; pulled where it is not there.
fn model_path(model: &str) -> Result<PathBuf> {
    let cache = models::cache()?;
    let path = match resolve(model, &cache)? {
        Resolution::Local(path) | Resolution::Cached(path) => path,
        Resolution::Pull(target) => {
            models::fetch(&cache, [model])?;
            cache.path().join(target.file_name())
        }
    };
    std::path::absolute(Path::new(&path)).context("the model has no absolute path")
}

/// The row of a test in the answer of `minfer bench -o json`: its speed, and its share of the limit
/// (0 where not told).
fn row(json: &str, spec: Spec) -> Result<(f64, f64)> {
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(json).context("minfer bench did not answer with rows")?;
    let fits =
        |row: &&serde_json::Value| row["test"] == spec.row_name().as_str() && row["depth"] == spec.depth;
    let row = rows.iter().find(fits).with_context(|| format!("minfer bench has no row for {spec}"))?;
    let speed = row["tok_s"].as_f64().with_context(|| format!("the row of {spec} has no tok_s"))?;
    ensure!(speed > 0.0, "the row of {spec} has a speed of {speed}");
    Ok((speed, row["of_limit"].as_f64().unwrap_or(0.0)))
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, want) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5)]
        {
            assert_eq!(median(values.clone()), want, "{values:?}");
        }
    }

    #[test]
    fn rows_of_a_bench() {
        let json = r#"[{"test":"tg32","depth":0,"tok_s":9.0},{"test":"tg32","depth":64,"tok_s":8.0,"of_limit":0.7}]"#;
        assert_eq!(row(json, "tg32@64".parse().unwrap()).unwrap(), (8.0, 0.7));
        assert_eq!(row(json, "tg32".parse().unwrap()).unwrap(), (9.0, 0.0));
        assert!(row(json, "pp32".parse().unwrap()).unwrap_err().to_string().contains("no row for pp32"));
        assert!(row(r#"[{"test":"pp1","depth":0,"tok_s":0}]"#, "pp1".parse().unwrap()).is_err());
        assert!(row("oops", "pp1".parse().unwrap()).is_err());
    }
}
