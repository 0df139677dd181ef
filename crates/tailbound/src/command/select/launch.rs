//! Starts nodes, probes them, keeps the best and ends the others.
//!
//! Read [`Options::run`] first. Only nodes with this run's tag are ended: those that the launcher
//! said it started, and those with the tag that it did not tell of.

use super::launcher::{Launched, Launcher, Request, end, not_started};
use super::{Selection, results};
use crate::exit::{Failure, print_error};
use std::collections::VecDeque;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_probe::Outcome;
use tailbound_probe::select::{Candidate, Use};
use tailbound_units::Nanos;

/// The longest result of a probe.
const MAX_RESULT: u64 = 4 << 20;
/// Nodes that are started at most.
const MOST: usize = 10_000;

/// Options of a selection that starts its nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Start nodes by this program, which speaks JSON lines; its words are separated by spaces
    #[arg(long, value_name = "CMD", conflicts_with_all = ["results", "keep"])]
    pub(super) launch: Option<String>,
    /// How many nodes are needed
    #[arg(long, value_name = "N", value_parser = super::at_least_one, requires = "launch")]
    want: Option<usize>,
    /// Start so many for each that is needed (K)
    #[arg(long, value_name = "K", default_value_t = 4.0, value_parser = overshoot)]
    overshoot: f64,
    /// How a node is probed; `{address}` is where it is
    #[arg(
        long,
        value_name = "CMD",
        default_value = "ssh -o BatchMode=yes {address} tailbound probe --output json"
    )]
    probe: String,
    /// Probe so many nodes at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = super::at_least_one)]
    parallel: usize,
    /// The launcher has so long for each answer
    #[arg(long, value_name = "TIME", default_value = "300s")]
    launch_timeout: Nanos,
    /// A probe has so long
    #[arg(long, value_name = "TIME", default_value = "180s")]
    probe_timeout: Nanos,
    /// Say what would be started, and start nothing
    #[arg(long, requires = "launch")]
    dry_run: bool,
    /// End all nodes with this tag, which a run that was interrupted left
    #[arg(long, value_name = "TAG", requires = "launch", conflicts_with = "want")]
    end: Option<String>,
}

fn overshoot(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 1 to 100".to_owned()),
    }
}

/// A node that was started, and what its probe found or why it found nothing.
struct Probed {
    launched: Launched,
    found: Result<Candidate, String>,
}

/// What a launched run comes to.
pub(super) enum Outcomes {
    /// Nodes were chosen.
    Chosen(Selection),
    /// Nothing was to be chosen; what was done instead.
    Said(String),
}

impl Options {
    /// Does all of it.
    ///
    /// # Errors
    /// The launcher failed; all that has the tag was ended then, as far as it lets us.
    pub(super) fn run(&self, launch: &str) -> Result<Outcomes, Failure> {
        let start = || Launcher::start(launch, Duration::from(self.launch_timeout));
        if let Some(tag) = &self.end {
            let mut launcher = start().map_err(Failure::new)?;
            let ended = end_all(&mut launcher, tag, &[]).map_err(Failure::new)?;
            return Ok(Outcomes::Said(format!("{ended} nodes of {tag} ended\n")));
        }
        let want = self.want.ok_or_else(|| {
            Failure::wrong_arguments("how many nodes are needed is missing: --want N")
        })?;
        let count = (want as f64 * self.overshoot).ceil() as usize;
        if count > MOST {
            return Err(Failure::wrong_arguments(format!(
                "{count} nodes: at most {MOST} are started"
            )));
        }
        let tag = tag();
        let mut launcher = start().map_err(Failure::new)?;
        if !empty(&mut launcher, &tag).map_err(Failure::new)? {
            return Err(Failure::new(format!(
                "the launcher names nodes with the tag {tag}, which is new: it does not go by tags"
            )));
        }
        if self.dry_run {
            return Ok(Outcomes::Said(format!(
                "would start {count} nodes, keep the best {want} and end the others\n"
            )));
        }
        print_error(&format!("nodes of this run have the tag {tag}"));
        match self.choose(&mut launcher, &tag, count, want) {
            Ok(selection) => Ok(Outcomes::Chosen(selection)),
            Err(why) => {
                drop(launcher);
                let ended = start().and_then(|mut launcher| end_all(&mut launcher, &tag, &[]));
                let after = match ended {
                    Ok(count) => format!("all {count} nodes of {tag} were ended"),
                    Err(error) => format!(
                        "nodes may be left: {error}; end them with --launch ... --end {tag}"
                    ),
                };
                Err(Failure::new(format!("{why}; {after}")))
            }
        }
    }

    fn choose(
        &self,
        launcher: &mut Launcher,
        tag: &str,
        count: usize,
        want: usize,
    ) -> Result<Selection, String> {
        let nodes = launcher.ask(Request::Create { count, tag })?;
        different(&nodes)?;
        let probed = self.probe_all(nodes);
        let rows: Vec<_> = probed.iter().map(row).collect();
        let selection = Selection::of(&rows, want);
        let kept: Vec<&str> = selection
            .nodes
            .iter()
            .filter(|node| node.what == Use::Keep)
            .map(|node| node.node.as_str())
            .collect();
        end_all(launcher, tag, &kept)?;
        Ok(selection)
    }

    /// Probes all nodes, some at a time; the results are in their order.
    fn probe_all(&self, nodes: Vec<Launched>) -> Vec<Probed> {
        let threads = self.parallel.min(nodes.len());
        let waiting: VecDeque<_> = nodes.into_iter().enumerate().collect();
        let (waiting, done) = (Mutex::new(waiting), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let next = waiting
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .pop_front();
                        let Some((place, launched)) = next else {
                            return;
                        };
                        let found = self.probe(&launched);
                        let probed = Probed { launched, found };
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((place, probed));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, probed)| probed).collect()
    }

    fn probe(&self, node: &Launched) -> Result<Candidate, String> {
        let words = self.probe.split_whitespace();
        let mut words = words.map(|word| word.replace("{address}", &node.address));
        let program = words.next().ok_or("the command of the probe is empty")?;
        let mut child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| not_started("--probe", &program, &error))?;
        let output = child.stdout.take().expect("it is piped");
        let reading = std::thread::spawn(move || {
            let mut text = Vec::new();
            output.take(MAX_RESULT).read_to_end(&mut text).map(|_| text)
        });
        wait(&mut child, Duration::from(self.probe_timeout))?;
        let text = reading.join().map_err(|_| "reading its result failed")?;
        let text = text.map_err(|error| format!("reading its result: {error}"))?;
        results::candidate(&text)
    }
}

/// Waits for its end, and ends it when its time is over.
fn wait(child: &mut Child, patience: Duration) -> Result<(), String> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            // The verdict is in the result, whatever the exit code.
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                end(child);
                return Err(format!("no result within {} s", patience.as_secs_f64()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// A node as it is chosen from; without a result it is none that can be kept.
fn row(probed: &Probed) -> super::Row {
    let name = probed.launched.node.clone();
    let (candidate, note) = match &probed.found {
        Ok(candidate) => (
            Candidate {
                name,
                ..candidate.clone()
            },
            probed.launched.address.clone(),
        ),
        Err(why) => {
            let nothing = Candidate {
                name,
                outcome: Outcome::Inconclusive,
                network: None,
                samples: 0,
                late: 0,
                p99_9: Nanos::ZERO,
            };
            (nothing, format!("{}: {why}", probed.launched.address))
        }
    };
    super::Row { candidate, note }
}

/// Whether nothing has the tag.
fn empty(launcher: &mut Launcher, tag: &str) -> Result<bool, String> {
    launcher
        .ask(Request::List { tag })
        .map(|nodes| nodes.is_empty())
}

fn different(nodes: &[Launched]) -> Result<(), String> {
    let mut names: Vec<_> = nodes.iter().map(|node| &node.node).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(format!("the launcher names node {} twice", pair[0])),
    }
}

/// Ends all that has the tag but those that are kept; returns how many.
fn end_all(launcher: &mut Launcher, tag: &str, kept: &[&str]) -> Result<usize, String> {
    let nodes = launcher.ask(Request::List { tag })?;
    let others = nodes
        .iter()
        .filter(|node| !kept.contains(&node.node.as_str()));
    let mut ended = 0;
    for Launched { node, .. } in others {
        launcher.ask(Request::Delete { node, tag })?;
        ended += 1;
    }
    Ok(ended)
}

/// A tag that no other run has.
fn tag() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos();
    format!("tailbound-{nanos:x}-{}", std::process::id())
}
