//! Probe: sleeps on each vCPU and prints the verdict on the node.

use super::document::{self, ConfigDocument, CpuDocument, Document, Interval, SCHEMA};
use super::form::Form;
use super::log::Log;
use super::text;
use crate::command::output::{self, print};
use crate::exit::{Exit, Failure, print_error};
use hdrhistogram::Histogram;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;
use tailbound_probe::run::sleeper::Sleeper;
use tailbound_probe::run::sleepers;
use tailbound_probe::{Config, Rule, Stop};
use tailbound_report::{Stats, empty_histogram};
use tailbound_sys::cpuset::{Cpus, CpusError, affinity};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// Options of `tailbound probe` without a subcommand.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    #[command(flatten)]
    measure: Measure,
    /// Write the sleep durations as an `HdrHistogram` log, one interval for each second and vCPU
    #[arg(long, value_name = "FILE")]
    histogram_log: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// Arguments of the measurement and of its verdict.
#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    /// The maximum number of sleeps (M)
    #[arg(long, value_name = "N", default_value_t = Config::default().samples)]
    samples: u64,
    /// The duration of each sleep (S)
    #[arg(long, value_name = "TIME", default_value = "100us")]
    sleep: Nanos,
    /// Use 50,000 sleeps of 2 ms, and 11 ms as the late mark: a twentieth of the CPU cost
    #[arg(long, conflicts_with_all = ["samples", "sleep", "late"])]
    coarse: bool,
    /// The time after which the run is complete, even with fewer sleeps
    #[arg(long, value_name = "TIME", default_value = "100s")]
    span: Nanos,
    /// The duration from which a sleep is late
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    late: Nanos,
    /// The maximum number of late sleeps of a GOOD instance
    #[arg(long, value_name = "N", default_value_t = Config::default().low_mark)]
    low_mark: u64,
    /// The number of late sleeps above which the instance is BAD [default: 5 times the low mark]
    #[arg(long, value_name = "N")]
    high_mark: Option<u64>,
    /// The confidence at which the run stops early with GOOD
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    confidence: f64,
    /// Stop early only with a certain BAD, as Bobtail's Algorithm 1 does
    #[arg(long, conflicts_with = "confidence")]
    exact: bool,
    /// The share of a vCPU that other programs of this guest may use; above it, unexplained late
    /// sleeps do not count against the neighbours
    #[arg(long, value_name = "SHARE", default_value_t = Config::default().busy)]
    busy: f64,
    /// The time after which the probe ends without a verdict
    #[arg(long, value_name = "TIME", default_value = "110s")]
    time_limit: Nanos,
    /// The vCPUs to probe, such as 0,2-5 [default: all that this process may use]
    #[arg(long, value_name = "LIST", value_parser = some_cpus)]
    cpus: Option<Cpus>,
}

/// Parses a list of at least one CPU.
fn some_cpus(text: &str) -> Result<Cpus, CpusError> {
    let cpus: Cpus = text.parse()?;
    if cpus.is_empty() {
        let text = text.to_owned();
        return Err(CpusError { text });
    }
    Ok(cpus)
}

impl Options {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let document = self.measure.run(self.output, self.histogram_log)?;
        show(&document, self.output);
        Ok(document.verdict.into())
    }
}

impl Measure {
    fn config(&self) -> Config {
        let confidence = self.confidence;
        let sleeps = if self.coarse {
            Config::coarse()
        } else {
            Config {
                sleep: self.sleep,
                samples: self.samples,
                late: self.late,
                ..Config::default()
            }
        };
        Config {
            span: self.span,
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
            ..sleeps
        }
    }

    /// Measures and judges the node; the sleeps are also written to `log`, if there is one, and
    /// with `form` lines to standard output.
    pub(super) fn run(&self, form: Form, log: Option<PathBuf>) -> Result<Document, Failure> {
        let rule = Rule::new(self.config()).map_err(Failure::wrong_arguments)?;
        let cpus = self.allowed()?;
        let start = SystemTime::now();
        let log = log.map(|path| Log::create(path, start)).transpose()?;
        if let Err(error) = timer::lock_memory() {
            let limit = getrlimit(Resource::Memlock).current;
            print_error(&not_locked(&error, limit));
        }
        let mut reporter = Reporter::new(form, log, &cpus);
        let finished = sleepers::run(&cpus, &rule, empty_histogram, |sleepers| {
            reporter.report(sleepers)
        })?;
        let sleeps = reporter.finish();
        let (verdict, line) = document::node_verdict(&finished);
        Ok(Document {
            node: document::node_name(),
            verdict,
            line,
            kernel: document::kernel(),
            start_unix_s: document::unix(start),
            config: ConfigDocument::from(rule.config()),
            cpus: finished
                .iter()
                .zip(&sleeps)
                .map(|(finished, sleeps)| CpuDocument::new(finished, sleeps))
                .collect(),
        })
    }

    /// Returns the CPUs to probe, all of which this process may use.
    fn allowed(&self) -> Result<Cpus, Failure> {
        let allowed = affinity(0).map_err(|error| {
            Failure::new(format!(
                "asking the kernel for this process's CPUs: {error}"
            ))
        })?;
        let wanted = self.cpus.unwrap_or(allowed);
        match wanted.without(&allowed).iter().next() {
            None => Ok(wanted),
            Some(cpu) => Err(Failure::wrong_arguments(format!(
                "CPU {cpu} is not among those this process may run on: {allowed}"
            ))),
        }
    }
}

/// Returns the warning that memory could not be locked; if a limit in bytes is the cause, with the
/// ways to raise it.
fn not_locked(error: &io::Error, limit: Option<u64>) -> String {
    let seen = "memory is not locked, a page fault may look like a late sleep:";
    match (limit, error.kind()) {
        (Some(limit), io::ErrorKind::OutOfMemory | io::ErrorKind::PermissionDenied) => format!(
            "{seen} this user may lock {} KiB (ulimit -l). To raise that: `ulimit -l unlimited` in \
             a shell of root before, LimitMEMLOCK=infinity in a unit of systemd, `USER - memlock \
             unlimited` in /etc/security/limits.conf, or the capability CAP_IPC_LOCK",
            limit / 1_024
        ),
        _ => format!("{seen} {error}"),
    }
}

/// Reports the progress of the run, and collects all its sleeps.
struct Reporter {
    form: Form,
    log: Option<Log>,
    start: Nanos,
    /// End of the last report, from the start.
    reported: Nanos,
    empty: Histogram<u64>,
    /// All sleeps so far, a histogram for each CPU.
    sleeps: Vec<Histogram<u64>>,
    shown: bool,
}

impl Reporter {
    fn new(form: Form, log: Option<Log>, cpus: &Cpus) -> Self {
        Self {
            form,
            log,
            start: timer::now(),
            reported: Nanos::ZERO,
            empty: empty_histogram(),
            sleeps: cpus.iter().map(|_| empty_histogram()).collect(),
            shown: output::shows_progress(),
        }
    }

    fn report(&mut self, sleepers: &[Sleeper]) -> Result<(), Failure> {
        let at = timer::now().since(self.start);
        let (mut slept, mut late) = (0, 0);
        for (sleeper, all) in sleepers.iter().zip(&mut self.sleeps) {
            let cpu = sleeper.cpu();
            let counts = sleeper.take(&mut self.empty);
            let sleeps = &self.empty;
            if self.form == Form::Jsonl && !sleeps.is_empty() {
                output::line(
                    "interval",
                    SCHEMA,
                    &Interval {
                        cpu,
                        at_ns: at.as_nanos(),
                        counts,
                        sleep_ns: Stats::from_histogram(sleeps),
                    },
                );
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
        output::progress(
            self.shown,
            &format!("{seconds:.0} s: {slept} sleeps, {late} late"),
        );
        Ok(())
    }

    /// Clears the line on the terminal and returns all sleeps, in the order of the CPUs.
    fn finish(mut self) -> Vec<Histogram<u64>> {
        std::mem::take(&mut self.sleeps)
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        output::progress(self.shown, "");
    }
}

fn show(document: &Document, form: Form) {
    match form {
        Form::Json => print(&output::json("probe", SCHEMA, document)),
        Form::Jsonl => output::line("probe", SCHEMA, document),
        Form::Line => print(&format!("{}\n", document.line)),
        Form::Text => print(&text::render(document, output::paint().0)),
    }
}

#[cfg(test)]
mod tests {
    use super::not_locked;
    use std::io;

    #[test]
    fn memory_lock_errors_name_the_limit_and_its_remedies() {
        // A limit causes ENOMEM and EPERM.
        for error in [12, 1].map(io::Error::from_raw_os_error) {
            let said = not_locked(&error, Some(8_192 << 10));
            assert!(said.contains("may lock 8192 KiB (ulimit -l)"), "{said}");
            for remedy in [
                "ulimit -l unlimited",
                "LimitMEMLOCK=infinity",
                "CAP_IPC_LOCK",
            ] {
                assert!(said.contains(remedy), "{said}");
            }
        }
        let other = not_locked(&io::Error::from_raw_os_error(38), Some(8_192 << 10));
        assert!(other.ends_with("(os error 38)"), "{other}");
        let no_limit = not_locked(&io::Error::from_raw_os_error(12), None);
        assert!(no_limit.ends_with("(os error 12)"), "{no_limit}");
    }
}
