//! Tries whether tests notice small mistakes ("mutants") in the code that they test:
//!
//! ```text
//! mutants [--write] [--most N] [--jobs N] [--seconds N] [--changed COMMIT] [PART...]
//! ```
//!
//! One build of a copy of the crate ([`tree`]) has all mutants of a part ([`part`]), each behind a
//! condition ([`rewrite`]); the variable `TAILBOUND_MUTANT` selects one. Each unit test of the
//! crate runs once to find the mutants that it reaches, then each mutant meets its tests, the fastest
//! ones first ([`run`]). Survivors that [`record`] does not name are an error.

mod changed;
mod compile;
mod find;
mod part;
mod record;
mod rewrite;
mod run;
mod tree;

use part::{PARTS, Part};
use record::{Key, Score, Scores};
use rewrite::Numbered;
use run::{Fate, Programs};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The options of the command line.
#[derive(Debug)]
struct Options {
    writes: bool,
    most: Option<usize>,
    jobs: usize,
    limit: Duration,
    /// Only mutants of lines that differ from this commit.
    changed: Option<String>,
    parts: Vec<Part>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            writes: false,
            most: None,
            jobs: 2,
            limit: Duration::MAX,
            changed: None,
            parts: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| {
                text.parse::<u32>()
                    .map_err(|error| format!("{text}: {error}"))
            };
            match word.as_str() {
                "--write" => options.writes = true,
                "--most" => options.most = Some(number(value()?)? as usize),
                "--jobs" => options.jobs = number(value()?)?.max(1) as usize,
                "--seconds" => options.limit = Duration::from_secs(number(value()?)?.into()),
                "--changed" => options.changed = Some(value()?),
                name => options.parts.push(Part::named(name).ok_or_else(|| {
                    let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
                    format!("there is no part {name}: {}", names.join(", "))
                })?),
            }
        }
        if options.parts.is_empty() {
            options.parts = PARTS.to_vec();
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| try_parts(&options));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Tries all parts; returns whether each survivor has a reason in the record.
fn try_parts(options: &Options) -> Result<bool, String> {
    let read = || fs::read_to_string(record::FILE).unwrap_or_default();
    let mut scores = record::parse(&read())?;
    let begun = Instant::now();
    let mut holds = true;
    for part in &options.parts {
        if begun.elapsed() >= options.limit {
            println!("{}: not tried for lack of time", part.name);
            continue;
        }
        let Some(mut score) = try_part(part, options, begun)? else {
            continue;
        };
        record::keep_reasons(&mut score, scores.get(part.name));
        let unnamed = score.survivors.values().filter(|reason| reason.is_empty());
        let unnamed = unnamed.count();
        if unnamed > 0 {
            println!(
                "{}: {unnamed} survivors have no reason in {}",
                part.name,
                record::FILE
            );
            holds = false;
        }
        scores.insert(part.name.to_owned(), score);
    }
    if options.writes {
        write(&scores)?;
    }
    let (killed, mutants) = scores.values().fold((0, 0), |sum, score| {
        (sum.0 + score.killed, sum.1 + score.mutants)
    });
    println!("all parts: {killed} of {mutants} mutants are killed");
    Ok(holds)
}

fn write(scores: &Scores) -> Result<(), String> {
    fs::write(record::FILE, record::text(scores))
        .map_err(|error| format!("{}: {error}", record::FILE))
}

/// Tries a part; `None` if it has no mutant to try.
fn try_part(part: &Part, options: &Options, begun: Instant) -> Result<Option<Score>, String> {
    let start = Instant::now();
    let root = Path::new(".");
    let target = std::path::absolute("target/mutants").map_err(|error| error.to_string())?;
    let mut sources = tree::read(root, part)?;
    if let Some(commit) = &options.changed {
        let base = format!("crates/{}/src", part.folder);
        let lines = changed::lines(commit, &base)?;
        for (file, mutants) in &mut sources.mutants {
            let lines = lines.get(&format!("{base}/{file}"));
            mutants.retain(|it| lines.is_some_and(|lines| lines.contains(&it.mutant.line)));
        }
        if sources.mutants.values().all(Vec::is_empty) {
            return Ok(None);
        }
    }
    let tree = tree::Tree::make(root, &target, part)?;
    let compiled = compile::compile(&tree, &target.join("build"), &sources, part)?;
    let programs = Programs(compiled.programs);
    let tests = programs.tests(&target, options.jobs)?;
    let all = sources.mutants.iter();
    let mut all: Vec<_> = all
        .flat_map(|(file, mutants)| mutants.iter().map(move |mutant| (file.as_str(), mutant)))
        .filter(|(_, it)| !compiled.dropped.contains(&it.number))
        .collect();
    let valid = all.len();
    all.sort_by_key(|(file, it)| hash(file, it));
    all.truncate(options.most.unwrap_or(part.most));
    let fates = run::each(&all, options.jobs, |_, (_, it)| {
        (begun.elapsed() < options.limit).then(|| programs.try_mutant(it.number, &tests))
    });
    let score = judge(part, &all, &fates);
    let Score {
        mutants, killed, ..
    } = &score;
    println!(
        "{}: {killed} of {mutants} mutants killed, of {valid} that compile, {} s",
        part.name,
        start.elapsed().as_secs()
    );
    Ok(Some(score))
}

/// Counts the fates, and prints the survivors.
fn judge(part: &Part, mutants: &[(&str, &Numbered)], fates: &[Option<Fate>]) -> Score {
    let mut score = Score::default();
    for ((file, it), fate) in mutants.iter().zip(fates) {
        let Some(fate) = fate else { continue };
        score.mutants += 1;
        if fate.is_killed() {
            score.killed += 1;
            continue;
        }
        let mutant = &it.mutant;
        println!(
            "{fate:?} crates/{}/src/{file}:{} {}: {}",
            part.folder, mutant.line, mutant.function, mutant.change
        );
        let mut key = Key {
            file: (*file).to_owned(),
            function: mutant.function.clone(),
            change: mutant.change.clone(),
        };
        while score.survivors.contains_key(&key) {
            key.change.push_str(" (another)");
        }
        score.survivors.insert(key, String::new());
    }
    score
}

/// Orders mutants at random, but always alike as long as their code stays (FNV-1a).
fn hash(file: &str, it: &Numbered) -> u64 {
    let mutant = &it.mutant;
    let words = [file, &mutant.function, &mutant.change];
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
