//! Sleeps on each vCPU and prints what the node is.

use super::document::{self, ConfigDocument, CpuDocument, Document, Interval, SCHEMA};
use super::error::ProbeError;
use super::form::{Form, line};
use super::log::Log;
use super::progress;
use super::text;
use crate::command::output::{self, print};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::io::{IsTerminal as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};
use tailbound_probe::{Config, Rule, Stop};
use tailbound_probe_run::sleeper::{self, Finished, Shared, SleeperError};
use tailbound_report::{Stats, empty_histogram};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Options of `tailbound probe` without a subcommand.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Sleep this often at most (M)
    #[arg(long, value_name = "N", default_value_t = Config::default().samples)]
    samples: u64,
    /// Sleep this long each time (S)
    #[arg(long, value_name = "TIME", default_value = "100us")]
    sleep: Nanos,
    /// A sleep that takes this long or longer is late
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    late: Nanos,
    /// With at most so many late sleeps the node is GOOD
    #[arg(long, value_name = "N", default_value_t = Config::default().low_mark)]
    low_mark: u64,
    /// With more late sleeps the node is BAD [default: 5 times the low mark]
    #[arg(long, value_name = "N")]
    high_mark: Option<u64>,
    /// Stop early with GOOD when it is that sure that the whole run would say so
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    confidence: f64,
    /// Stop early with BAD alone, when it is certain: Bobtail's Algorithm 1 as it is
    #[arg(long, conflicts_with = "confidence")]
    exact: bool,
    /// Above this share of a vCPU used by others in this guest, what nothing explains
    /// is not held against the neighbours
    #[arg(long, value_name = "SHARE", default_value_t = Config::default().busy)]
    busy: f64,
    /// End without a verdict after this time
    #[arg(long, value_name = "TIME", default_value = "110s")]
    time_limit: Nanos,
    /// Probe these vCPUs, such as 0,2-5 [default: all this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Write how long the sleeps took, an interval a second and vCPU, as an
    /// `HdrHistogram` log
    #[arg(long, value_name = "FILE")]
    histogram_log: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// CPU numbers, each once, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CpuList(Vec<u32>);

impl std::str::FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of CPUs: write for example 0,2-5");
        let number = |part: &str| part.parse::<u32>().map_err(|_| wrong());
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last as usize >= CpuSet::MAX_CPU {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

impl Options {
    fn config(&self) -> Config {
        let confidence = self.confidence;
        Config {
            sleep: self.sleep,
            samples: self.samples,
            late: self.late,
            low_mark: self.low_mark,
            high_mark: self
                .high_mark
                .unwrap_or_else(|| self.low_mark.saturating_mul(5)),
            stop: if self.exact {
                Stop::Exact
            } else {
                Stop::Early { confidence }
            },
            busy: self.busy,
            time_limit: self.time_limit,
        }
    }

    pub(super) fn run(self) -> Result<ExitCode, ProbeError> {
        let rule = Rule::new(self.config())?;
        let cpus = self.allowed()?;
        let start = SystemTime::now();
        let log = self
            .histogram_log
            .map(|path| Log::create(path, start))
            .transpose()?;
        if let Err(error) = timer::lock_memory() {
            eprintln!(
                "tailbound probe: memory is not locked, a page fault may look like a late sleep: {error}"
            );
        }
        let mut reporter = Reporter {
            form: self.output,
            log,
            start: timer::now(),
            reported: Nanos::ZERO,
            empty: empty_histogram(),
            terminal: stderr().is_terminal(),
        };
        let (finished, sleeps) = sleep_on(&cpus, &rule, &mut reporter)?;
        let (verdict, line) = document::node_verdict(&finished);
        let document = Document {
            schema: SCHEMA,
            kind: "probe",
            node: document::node_name(),
            verdict,
            line,
            kernel: document::kernel(),
            start_unix_s: document::unix(start),
            config: ConfigDocument::from(rule.config()),
            cpus: finished
                .iter()
                .zip(&sleeps)
                .map(|((cpu, finished), sleeps)| CpuDocument::new(*cpu, finished, sleeps))
                .collect(),
        };
        show(&document, self.output);
        Ok(ExitCode::from(verdict.exit_code()))
    }

    /// The CPUs to probe, of which this process may run on each.
    fn allowed(&self) -> Result<Vec<u32>, ProbeError> {
        let set = sched_getaffinity(None).map_err(|errno| ProbeError::Affinity(errno.into()))?;
        let all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
        let all: Vec<u32> = all.map(|cpu| cpu as u32).collect();
        let Some(CpuList(wanted)) = &self.cpus else {
            return Ok(all);
        };
        match wanted.iter().find(|cpu| !all.contains(cpu)) {
            None => Ok(wanted.clone()),
            Some(&cpu) => Err(ProbeError::Cpu {
                cpu,
                allowed: all.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            }),
        }
    }
}

/// What each vCPU's sleeper found, in the order of the vCPUs, and all its sleeps.
type Found = (Vec<(u32, Finished)>, Vec<Histogram<u64>>);

/// Runs a sleeper on each CPU to its end.
fn sleep_on(cpus: &[u32], rule: &Rule, reporter: &mut Reporter) -> Result<Found, ProbeError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without it a signal ends the process at once: no verdict is printed.
        let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    }
    let stop = &*stop;
    let sleepers: Vec<_> = cpus
        .iter()
        .map(|cpu| (*cpu, Shared::new(empty_histogram())))
        .collect();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let start = |(cpu, shared)| {
            let (cpu, shared): (&u32, &Shared) = (cpu, shared);
            let (sender, rule) = (sender.clone(), rule.clone());
            let sleeper = move || {
                let found = sleeper::run(*cpu, rule, shared, stop);
                // Whoever stopped listening has set `stop`.
                let _ = sender.send((*cpu, found));
            };
            let named = std::thread::Builder::new().name(format!("probe {cpu}"));
            match named.spawn_scoped(scope, sleeper) {
                Ok(_) => Ok(()),
                Err(source) => Err(SleeperError {
                    cpu: *cpu,
                    what: "starting a thread",
                    source,
                }),
            }
        };
        let started = sleepers
            .iter()
            .try_for_each(|(cpu, shared)| start((cpu, shared)));
        drop(sender);
        let found = started
            .map_err(ProbeError::from)
            .and_then(|()| reporter.watch(&receiver, &sleepers));
        // Of an error; otherwise all have ended.
        stop.store(true, Ordering::Relaxed);
        found
    })
}

/// How often the run is reported.
const INTERVAL: Nanos = Nanos::from_secs(1);

/// Says how the run goes.
struct Reporter {
    form: Form,
    log: Option<Log>,
    start: Nanos,
    /// Up to when, from the start.
    reported: Nanos,
    empty: Histogram<u64>,
    terminal: bool,
}

impl Reporter {
    /// Reports each interval until all sleepers have sent what they found.
    fn watch(
        &mut self,
        receiver: &Receiver<(u32, Result<Finished, SleeperError>)>,
        sleepers: &[(u32, Shared)],
    ) -> Result<Found, ProbeError> {
        let mut sleeps: Vec<_> = sleepers.iter().map(|_| empty_histogram()).collect();
        let mut finished = Vec::new();
        let mut next = self.start.saturating_add(INTERVAL);
        loop {
            match receiver.recv_timeout(Duration::from(next.since(timer::now()))) {
                Ok((cpu, found)) => finished.push((cpu, found?)),
                Err(RecvTimeoutError::Timeout) => {
                    next = next.saturating_add(INTERVAL);
                    self.interval(sleepers, &mut sleeps)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.interval(sleepers, &mut sleeps)?;
        finished.sort_unstable_by_key(|(cpu, _)| *cpu);
        Ok((finished, sleeps))
    }

    fn interval(
        &mut self,
        sleepers: &[(u32, Shared)],
        sleeps: &mut [Histogram<u64>],
    ) -> Result<(), ProbeError> {
        let at = timer::now().since(self.start);
        let (mut slept, mut late) = (0, 0);
        for ((cpu, shared), all) in sleepers.iter().zip(sleeps) {
            let counts = shared.take(&mut self.empty);
            let sleeps = &self.empty;
            if self.form == Form::Jsonl && !sleeps.is_empty() {
                line(&Interval {
                    schema: SCHEMA,
                    kind: "interval",
                    cpu: *cpu,
                    at_ns: at.as_nanos(),
                    counts,
                    sleep_ns: Stats::from_histogram(sleeps),
                });
            }
            if let Some(log) = &mut self.log {
                log.write(&format!("cpu{cpu}"), self.reported..at, sleeps)?;
            }
            all.add(sleeps)
                .expect("both have the same bounds and grow as needed");
            self.empty.reset();
            slept += counts.samples;
            late += counts.late;
        }
        self.reported = at;
        let seconds = at.as_secs_f64();
        progress::show(
            self.terminal,
            &format!("{seconds:.0} s: {slept} sleeps, {late} late"),
        );
        Ok(())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        progress::show(self.terminal, "");
    }
}

fn show(document: &Document, form: Form) {
    match form {
        Form::Json => print(&output::json(document)),
        Form::Jsonl => line(document),
        Form::Line => print(&format!("{}\n", document.line)),
        Form::Text => print(&text::render(document, stdout().is_terminal())),
    }
}
