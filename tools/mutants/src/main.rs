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

use compile::Deadline;
use part::{PARTS, Part};
use record::{Key, Score, Scores};
use rewrite::Numbered;
use run::{Fate, Programs};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tree::Sources;

/// Mutants of a hundred that tests have to kill, of all parts together.
const LEAST_PERCENT: usize = 95;

/// The options of the command line.
#[derive(Debug)]
struct Options {
    writes: bool,
    most: Option<usize>,
    jobs: usize,
    deadline: Deadline,
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
            deadline: None,
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
                "--seconds" => {
                    let seconds = Duration::from_secs(number(value()?)?.into());
                    options.deadline = Some(Instant::now() + seconds);
                }
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

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
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
    // Parts of one crate share a build.
    for parts in options
        .parts
        .chunk_by(|one, other| one.folder == other.folder)
    {
        if options.is_over() {
            println!("{}: not tried for lack of time", parts[0].folder);
            continue;
        }
        for (name, mut score) in try_crate(parts, options, begun)? {
            record::keep_reasons(&mut score, scores.get(name));
            let unnamed = score.survivors.values().filter(|reason| reason.is_empty());
            let unnamed = unnamed.count();
            if unnamed > 0 {
                println!(
                    "{name}: {unnamed} survivors have no reason in {}",
                    record::FILE
                );
                holds = false;
            }
            scores.insert(name.to_owned(), score);
        }
    }
    if options.writes {
        write(&scores)?;
    }
    let sum = |of: fn(&Score) -> usize| scores.values().map(of).sum::<usize>();
    let (killed, mortal) = (sum(|it| it.killed), sum(Score::mortal));
    println!(
        "all parts: {killed} of {mortal} mutants are killed, {} more are equivalent",
        sum(|it| it.mutants) - mortal
    );
    if options.changed.is_none() && killed * 100 < mortal * LEAST_PERCENT {
        println!("fewer than {LEAST_PERCENT} % are killed");
        holds = false;
    }
    Ok(holds)
}

fn write(scores: &Scores) -> Result<(), String> {
    fs::write(record::FILE, record::text(scores))
        .map_err(|error| format!("{}: {error}", record::FILE))
}

/// Returns the mutants of a part in their order.
fn mutants_of<'s>(sources: &'s Sources, part: &Part) -> Vec<(&'s str, &'s Numbered)> {
    let files = sources.mutants.iter().filter(|(file, _)| part.has(file));
    let mut all: Vec<_> = files
        .flat_map(|(file, mutants)| mutants.iter().map(move |mutant| (file.as_str(), mutant)))
        .collect();
    all.sort_by_key(|(file, it)| hash(file, it));
    all
}

/// Keeps the mutants of changed lines, and of each part more than are tried, as some do not compile.
fn choose(sources: &mut Sources, parts: &[Part], options: &Options) -> Result<(), String> {
    if let Some(commit) = &options.changed {
        let base = format!("crates/{}/src", parts[0].folder);
        let lines = changed::lines(commit, &base)?;
        for (file, mutants) in &mut sources.mutants {
            let lines = lines.get(&format!("{base}/{file}"));
            mutants.retain(|it| lines.is_some_and(|lines| lines.contains(&it.mutant.line)));
        }
    }
    let chosen = parts.iter().flat_map(|part| {
        let most = options.most.unwrap_or(part.most);
        let all = mutants_of(sources, part).into_iter();
        all.take(most * 3 / 2).map(|(_, it)| it.number)
    });
    let chosen: BTreeSet<_> = chosen.collect();
    for mutants in sources.mutants.values_mut() {
        mutants.retain(|it| chosen.contains(&it.number));
    }
    Ok(())
}

/// Tries parts of one crate; returns the scores of those that have a mutant.
fn try_crate(
    parts: &[Part],
    options: &Options,
    begun: Instant,
) -> Result<Vec<(&'static str, Score)>, String> {
    let root = Path::new(".");
    let target = std::path::absolute("target/mutants").map_err(|error| error.to_string())?;
    let mut sources = tree::read(root, parts)?;
    choose(&mut sources, parts, options)?;
    if sources.mutants.values().all(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let tree = tree::Tree::make(root, &target, parts[0].folder)?;
    let build = target.join("build");
    let compiled = compile::compile(&tree, &build, &sources, parts, options.deadline)?;
    let Some(compiled) = compiled else {
        println!("{}: its build takes too long", parts[0].folder);
        return Ok(Vec::new());
    };
    let programs = Programs(compiled.programs);
    let tests = programs.tests(&target, options.jobs)?;
    let mut scores = Vec::new();
    for part in parts {
        let mut all = mutants_of(&sources, part);
        all.retain(|(_, it)| !compiled.dropped.contains(&it.number));
        all.truncate(options.most.unwrap_or(part.most));
        if all.is_empty() {
            continue;
        }
        let fates = run::each(&all, options.jobs, |_, (_, it)| {
            (!options.is_over()).then(|| programs.try_mutant(it.number, &tests))
        });
        let score = judge(part, &all, &fates);
        let Score {
            mutants, killed, ..
        } = &score;
        let (name, seconds) = (part.name, begun.elapsed().as_secs());
        println!("{name}: {killed} of {mutants} mutants killed after {seconds} s");
        scores.push((name, score));
    }
    Ok(scores)
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
