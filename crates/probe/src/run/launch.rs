//! Nodes that a launcher starts: probed some at a time, and ended by their tag.

use super::launcher::{Launched, Launcher, Request, end, not_started};
use crate::select::Candidate;
use std::collections::VecDeque;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest result of a probe, in bytes.
const MAX_RESULT: u64 = 4 << 20;

/// A node that was started, with the result of its probe or the reason why there is none.
#[derive(Debug)]
pub struct Probed {
    /// The node.
    pub launched: Launched,
    /// Its result.
    pub found: Result<Candidate, String>,
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
    /// Starts `count` nodes with a tag, and probes them. `read` reads the output of a probe.
    /// The results have the order of the nodes.
    ///
    /// # Errors
    /// The launcher failed, or names a node twice. A probe that fails is a result.
    pub fn create(
        &self,
        launcher: &mut Launcher,
        tag: &str,
        count: usize,
        read: impl Fn(&[u8]) -> Result<Candidate, String> + Sync,
    ) -> Result<Vec<Probed>, String> {
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
                        let found = self.output(&node).and_then(|text| read(&text));
                        let probed = Probed {
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
    fn output(&self, node: &Launched) -> Result<Vec<u8>, String> {
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
///
/// # Errors
/// The launcher failed.
pub fn is_empty(launcher: &mut Launcher, tag: &str) -> Result<bool, String> {
    launcher
        .request(Request::List { tag })
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

/// Ends all nodes with the tag except those that are kept. Returns their number.
///
/// # Errors
/// The launcher failed; some may be left.
pub fn end_all(launcher: &mut Launcher, tag: &str, kept: &[&str]) -> Result<usize, String> {
    let nodes = launcher.request(Request::List { tag })?;
    let others = nodes
        .iter()
        .filter(|node| !kept.contains(&node.node.as_str()));
    let mut ended = 0;
    for Launched { node, .. } in others {
        launcher.request(Request::Delete { node, tag })?;
        ended += 1;
    }
    Ok(ended)
}

/// A tag that no other run has.
pub fn tag() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos();
    format!("tailbound-{nanos:x}-{}", std::process::id())
}
