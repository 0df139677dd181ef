//! Runs tests: each once to see which mutants it reaches, then for each mutant those that reach it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Limit of a test's address space, in KiB: a mutant may allocate without end.
const MEMORY_KIB: u32 = 4 << 20;
/// Shortest time limit of some tests, and the multiple of the time that they took without a mutant.
const LEAST_TIME: Duration = Duration::from_secs(5);
const TIMES: u32 = 5;
/// Numbers of tests that run together, the fastest ones first: most mutants need no others.
const BATCHES: [usize; 3] = [8, 40, usize::MAX];

/// A program with tests.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The folder of its crate, in which cargo would run it.
    pub(crate) folder: PathBuf,
}

/// The programs with all tests.
#[derive(Debug, Clone)]
pub(crate) struct Programs(pub(crate) Vec<Program>);

/// A test.
#[derive(Debug)]
pub(crate) struct Test {
    /// The program that has it.
    program: usize,
    name: String,
    time: Duration,
    reached: Vec<u8>,
}

/// The fate of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// This test failed.
    Killed(String),
    /// Its tests did not end in time.
    Endless,
    /// The test program ended early.
    Crashed,
    /// All its tests passed.
    Survived,
    /// Without a test that reaches it.
    Unreached,
}

impl Fate {
    pub(crate) const fn is_killed(&self) -> bool {
        matches!(self, Self::Killed(_) | Self::Endless | Self::Crashed)
    }
}

impl Programs {
    fn command(&self, program: usize, names: &[&str]) -> Command {
        let program = &self.0[program];
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -v {MEMORY_KIB}; exec \"$@\""))
            .arg("sh");
        command
            .arg(&program.path)
            .arg("--exact")
            .args(names)
            .args(["--test-threads", "1"]);
        command
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder);
        // As in CI, but a failure neither looks for a smaller example nor is remembered.
        command
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// Returns all tests, each with the number of its program.
    fn names(&self) -> Result<Vec<(usize, String)>, String> {
        let mut names = Vec::new();
        for (program, Program { path, .. }) in self.0.iter().enumerate() {
            let mut command = Command::new(path);
            let output = command.args(["--list", "--format", "terse"]).output();
            let output = output.map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout);
            let of_program = text.lines().filter_map(|line| line.strip_suffix(": test"));
            names.extend(of_program.map(|name| (program, name.to_owned())));
        }
        Ok(names)
    }

    /// Runs a test without a mutant; `None` if it fails.
    fn try_test(&self, program: usize, name: &str, scratch: &Path) -> Option<Test> {
        let begun = Instant::now();
        let mut command = self.command(program, &[name]);
        let status = command
            .env("TAILBOUND_REACHED", scratch)
            .stdout(Stdio::null())
            .status();
        let time = begun.elapsed();
        let reached = std::fs::read(scratch).unwrap_or_default();
        if !status.is_ok_and(|status| status.success()) {
            println!("{name} fails without a mutant, and is left out");
            return None;
        }
        Some(Test {
            program,
            name: name.to_owned(),
            time,
            reached,
        })
    }

    /// Runs all tests without a mutant.
    pub(crate) fn tests(&self, scratch: &Path, jobs: usize) -> Result<Vec<Test>, String> {
        let names = self.names()?;
        let of = |number: usize, (program, name): &(usize, String)| {
            let scratch = scratch.join(format!("reached-{number}"));
            let test = self.try_test(*program, name, &scratch);
            // A test that ended early wrote none.
            drop(std::fs::remove_file(scratch));
            test
        };
        let mut tests: Vec<_> = each(&names, jobs, of).into_iter().flatten().collect();
        tests.sort_by_key(|test| test.time);
        Ok(tests)
    }

    /// Runs the tests that reach a mutant until one of them fails.
    pub(crate) fn try_mutant(&self, number: u32, tests: &[Test]) -> Fate {
        let reaches = |test: &&Test| test.reached.get(number as usize) == Some(&1);
        let mut tests: Vec<_> = tests.iter().filter(reaches).collect();
        if tests.is_empty() {
            return Fate::Unreached;
        }
        for size in BATCHES {
            let batch: Vec<_> = tests.drain(..size.min(tests.len())).collect();
            for program in 0..self.0.len() {
                let of_program = batch.iter().filter(|test| test.program == program);
                let of_program: Vec<_> = of_program.copied().collect();
                if of_program.is_empty() {
                    continue;
                }
                let fate = self.try_batch(number, program, &of_program);
                if fate != Fate::Survived {
                    return fate;
                }
            }
        }
        Fate::Survived
    }

    fn try_batch(&self, number: u32, program: usize, batch: &[&Test]) -> Fate {
        let names: Vec<_> = batch.iter().map(|test| test.name.as_str()).collect();
        let time: Duration = batch.iter().map(|test| test.time).sum();
        let deadline = Instant::now() + LEAST_TIME.max(time * TIMES);
        let mut command = self.command(program, &names);
        let Ok(mut child) = command.env("TAILBOUND_MUTANT", number.to_string()).spawn() else {
            return Fate::Crashed;
        };
        let output = child.stdout.take().expect("it is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let fate = loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let failed = line
                        .strip_prefix("test ")
                        .and_then(|it| it.strip_suffix(" ... FAILED"));
                    if let Some(name) = failed {
                        break Some(Fate::Killed(name.to_owned()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => break Some(Fate::Endless),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        if fate.is_some() {
            // One that has ended needs no signal.
            drop(child.kill());
        }
        let passed = child.wait().is_ok_and(|status| status.success());
        fate.unwrap_or(if passed {
            Fate::Survived
        } else {
            Fate::Crashed
        })
    }
}

/// Calls a function for each item on some threads; the results are in the order of the items.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = work(number, item);
                    let mut results = results.lock().expect("no holder panics");
                    results.insert(number, result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no holder panics");
    results.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<_> = (0..100).collect();
        assert_eq!(each(&items, 3, |_, item| item * 2)[..3], [0, 2, 4]);
    }

    #[test]
    fn a_program_that_fails_kills_a_mutant() {
        let program = |path: &str| {
            let (path, folder) = (path.into(), "/".into());
            Programs(vec![Program { path, folder }])
        };
        let test = Test {
            program: 0,
            name: "a".into(),
            time: Duration::ZERO,
            reached: vec![0, 1],
        };
        let tests = [test];
        assert_eq!(program("/bin/true").try_mutant(1, &tests), Fate::Survived);
        assert_eq!(program("/bin/false").try_mutant(1, &tests), Fate::Crashed);
        assert_eq!(program("/bin/false").try_mutant(0, &tests), Fate::Unreached);
    }
}
