//! Nodes that a launcher starts: probed some at a time, selected, and ended by their tag.
//!
//! Read [`LaunchedSelection`] first. Only nodes with its tag are ended: those that the launcher reported as
//! started, and unreported ones with the tag.

use super::launcher::{LaunchedNode, Launcher, Request, end, not_started};
use super::results;
use crate::NodeVerdict;
use crate::select::{Candidate, Row, Selection, Use};
use std::collections::VecDeque;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tailbound_units::Nanos;

/// The longest result of a probe, in bytes.
const MAX_RESULT: u64 = 4 << 20;

/// A selection among nodes that are started for it.
#[derive(Debug)]
pub struct LaunchedSelection<'a> {
    command: &'a str,
    timeout: Duration,
    launcher: Launcher,
    tag: String,
}

impl<'a> LaunchedSelection<'a> {
    /// Starts the launcher `command`, which has `timeout` for each answer. No node is started.
    ///
    /// # Errors
    /// The launcher failed, or does not distinguish nodes by their tag.
    pub fn begin(command: &'a str, timeout: Duration) -> Result<Self, String> {
        let tag = tag();
        let mut launcher = Launcher::start(command, timeout)?;
        if !is_empty(&mut launcher, &tag)? {
            return Err(format!(
                "the launcher names nodes with the tag {tag}, which is new: it does not go by tags"
            ));
        }
        Ok(Self {
            command,
            timeout,
            launcher,
            tag,
        })
    }

    /// Returns the tag of the nodes.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Starts `count` nodes, probes them, keeps the best `want` and ends the others.
    ///
    /// # Errors
    /// The launcher failed; all nodes with the tag were ended then, as far as possible.
    pub fn select(
        mut self,
        probes: &Probes<'_>,
        count: usize,
        want: usize,
    ) -> Result<Selection, String> {
        let why = match choose(probes, &mut self.launcher, &self.tag, count, want) {
            Ok(selection) => return Ok(selection),
            Err(why) => why,
        };
        let tag = self.tag;
        drop(self.launcher);
        let after = match end_tag(self.command, self.timeout, &tag) {
            Ok(count) => format!("all {count} nodes of {tag} were ended"),
            Err(error) => {
                format!("nodes may be left: {error}; end them with --launch ... --end {tag}")
            }
        };
        Err(format!("{why}; {after}"))
    }
}

/// Ends all nodes with the tag, which an interrupted run left. Returns their number.
///
/// # Errors
/// The launcher failed; some may be left.
pub fn end_tag(command: &str, timeout: Duration, tag: &str) -> Result<usize, String> {
    end_all(&mut Launcher::start(command, timeout)?, tag, &[])
}

fn choose(
    probes: &Probes<'_>,
    launcher: &mut Launcher,
    tag: &str,
    count: usize,
    want: usize,
) -> Result<Selection, String> {
    let nodes = probes.create(launcher, tag, count)?;
    let rows: Vec<_> = nodes.iter().map(row).collect();
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

/// Returns a node as a candidate of the selection; without a result it cannot be kept.
fn row(probed: &ProbedNode) -> Row {
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
                outcome: NodeVerdict::Inconclusive,
                network: None,
                samples: 0,
                late: 0,
                p99_9: Nanos::ZERO,
            };
            (nothing, format!("{}: {why}", probed.launched.address))
        }
    };
    Row { candidate, note }
}

/// A node that was started, with the result of its probe or the reason why there is none.
#[derive(Debug)]
struct ProbedNode {
    launched: LaunchedNode,
    found: Result<Candidate, String>,
}

/// Settings of the probes.
#[derive(Debug, Clone, Copy)]
pub struct Probes<'a> {
    /// The command of a probe; `{address}` in it is the node's address.
    pub command: &'a str,
    /// Probes at the same time.
    pub parallel: usize,
    /// The longest time of a probe.
    pub patience: Duration,
}

impl Probes<'_> {
    /// Starts `count` nodes with a tag, and probes them. The results have the order of the nodes. A
    /// probe that fails is a result.
    fn create(
        &self,
        launcher: &mut Launcher,
        tag: &str,
        count: usize,
    ) -> Result<Vec<ProbedNode>, String> {
        let nodes = launcher.request(Request::Create { count, tag })?;
        different(&nodes)?;
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
                        let Some((place, node)) = next else {
                            return;
                        };
                        let found = self.output(&node);
                        let found = found.and_then(|text| results::candidate(&text));
                        let probed = ProbedNode {
                            launched: node,
                            found,
                        };
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((place, probed));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(place, _)| *place);
        Ok(done.into_iter().map(|(_, probed)| probed).collect())
    }

    /// The output of a node's probe.
    fn output(&self, node: &LaunchedNode) -> Result<Vec<u8>, String> {
        let words = self.command.split_whitespace();
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
        let output = child.stdout.take().ok_or("the probe has no output")?;
        let reading = std::thread::spawn(move || {
            let mut text = Vec::new();
            output.take(MAX_RESULT).read_to_end(&mut text).map(|_| text)
        });
        wait(&mut child, self.patience)?;
        let text = reading.join().map_err(|_| "reading its result failed")?;
        text.map_err(|error| format!("reading its result: {error}"))
    }
}

/// Waits for the end of a probe, and kills it after its time.
fn wait(child: &mut Child, patience: Duration) -> Result<(), String> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait() {
            // The result has the verdict; the exit code adds nothing.
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

/// Returns true if no node has the tag.
fn is_empty(launcher: &mut Launcher, tag: &str) -> Result<bool, String> {
    launcher
        .request(Request::List { tag })
        .map(|nodes| nodes.is_empty())
}

fn different(nodes: &[LaunchedNode]) -> Result<(), String> {
    let mut names: Vec<_> = nodes.iter().map(|node| &node.node).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(format!("the launcher names node {} twice", pair[0])),
    }
}

/// Ends all nodes with the tag except those that are kept. Returns their number.
fn end_all(launcher: &mut Launcher, tag: &str, kept: &[&str]) -> Result<usize, String> {
    let nodes = launcher.request(Request::List { tag })?;
    let others = nodes
        .iter()
        .filter(|node| !kept.contains(&node.node.as_str()));
    let mut ended = 0;
    for LaunchedNode { node, .. } in others {
        launcher.request(Request::Delete { node, tag })?;
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
