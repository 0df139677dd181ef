//! The children of a run: daemons, servers, clients. All of them end with the lab, and an
//! unexpected end of one is an error.

use crate::LabError;
use crate::run_dir::{OWNER_VARIABLE, RunDir};
use crate::topology::namespace_path;
use rustix::process::Signal;
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tailbound_sys::process::{Child, Spawn, how_it_ended};
use tailbound_sys::sched::{Policy, probe};
use tailbound_units::Nanos;

/// Interval of the checks of children.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Time limit for a child to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of the last lines of a dead child's standard error in the error message.
const TAIL_LINES: usize = 12;

/// Sign that a child is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A line of this text on standard output.
    Stdout(&'static str),
    /// A line with this word on standard error.
    Stderr(&'static str),
    /// None: the child needs no preparation, or its peers wait for it.
    Silent,
}

/// Priority of a child among those off the shared core.
///
/// Daemons stand for hardware and for a host's kernel, which do not wait behind programs; if
/// permitted, they have `SCHED_FIFO`, so that other use of this computer is not measured. Separate
/// hosts would not wait behind each other, either; here the measured ones run first. Guests on the
/// shared core keep the class that is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Watches the others.
    Monitor,
    /// Forwards packets of the measured load, or measures that load.
    OnPath,
    /// Forwards or measures other packets.
    Infrastructure,
    /// Is load for others.
    Load,
    /// Is under test.
    Tested,
}

impl Rank {
    /// Returns the scheduling class if any class may be set; `None` for the default.
    const fn real_time(self) -> Option<Policy> {
        match self {
            Self::Monitor => Some(Policy::Fifo(4)),
            Self::OnPath => Some(Policy::Fifo(3)),
            Self::Infrastructure => Some(Policy::Fifo(2)),
            Self::Load => Some(Policy::Fifo(1)),
            Self::Tested => None,
        }
    }

    /// Returns whether real-time classes may be set on this computer.
    pub(crate) fn real_time_is_allowed() -> bool {
        let highest = Self::Monitor.real_time();
        highest.is_some_and(|policy| probe(policy).is_ok())
    }

    /// Returns the scheduling class, depending on whether real-time classes may be set.
    pub(crate) const fn policy(self, real_time: bool) -> Option<Policy> {
        if real_time {
            self.real_time()
        } else {
            self.share()
        }
    }

    /// Returns the closest class that needs no privilege.
    const fn share(self) -> Option<Policy> {
        const SHORT: Nanos = Nanos::from_micros(100);
        let (nice, slice) = match self {
            Self::Monitor | Self::OnPath => (0, SHORT),
            Self::Infrastructure => (10, SHORT),
            Self::Load => (19, Nanos::ZERO),
            Self::Tested => return None,
        };
        Some(Policy::Share { nice, slice })
    }
}

/// Returns the class relative to this process: if `nice` started the process, shares are below its
/// own nice value, because a lower value needs a privilege.
pub(crate) fn from_here(policy: Policy) -> io::Result<Policy> {
    match policy {
        Policy::Share { .. } => {
            let own = rustix::process::getpriority_process(None)?;
            Ok(below(policy, own))
        }
        other => Ok(other),
    }
}

/// Returns the class at a nice value of `own` instead of 0.
fn below(policy: Policy, own: i32) -> Policy {
    match policy {
        Policy::Share { nice, slice } => Policy::Share {
            nice: (own + nice).min(19),
            slice,
        },
        other => other,
    }
}

/// A child and its expected behaviour.
#[derive(Debug)]
pub(crate) struct Member {
    /// Name for messages.
    pub(crate) name: String,
    pub(crate) child: Child,
    pub(crate) stdout: PathBuf,
    stderr: PathBuf,
    ready: Ready,
    /// True if the child ends by itself after its measurement.
    ends: bool,
}

/// A child to start.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Name of its network namespace.
    pub(crate) netns: &'a str,
    pub(crate) cpus: CpuSet,
    /// Its scheduling class; `None` for the default.
    pub(crate) policy: Option<Policy>,
    pub(crate) ready: Ready,
    pub(crate) ends: bool,
}

impl<'a> Start<'a> {
    /// Returns a child without arguments, of the default class, that does not report readiness and
    /// does not end by itself.
    pub(crate) fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        netns: &'a str,
        cpus: CpuSet,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            netns,
            cpus,
            policy: None,
            ready: Ready::Silent,
            ends: false,
        }
    }
}

/// Starts and supervises children.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    run_dir: &'a RunDir,
    signal: Arc<AtomicUsize>,
    members: Vec<Member>,
    started: usize,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(run_dir: &'a RunDir, signal: Arc<AtomicUsize>) -> Self {
        Self {
            run_dir,
            signal,
            members: Vec::new(),
            started: 0,
        }
    }

    /// Starts a child and returns its index.
    pub(crate) fn start(&mut self, start: Start<'_>) -> Result<usize, LabError> {
        self.started += 1;
        let stem: String = start
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let file = |extension: &str| {
            let name = format!("{:03}-{stem}.{extension}", self.started);
            self.run_dir.path().join(name)
        };
        let (stdout, stderr) = (file("out"), file("err"));
        let create = |path: &PathBuf| File::create(path).map_err(LabError::file("creating", path));
        let action = || format!("starting {} ({})", start.name, start.program.display());
        let mut spawn = Spawn::new(&start.program);
        if let Some(policy) = start.policy {
            spawn = spawn.policy(from_here(policy).map_err(LabError::io(action()))?);
        }
        let child = spawn
            .args(&start.args)
            .env(OWNER_VARIABLE, self.run_dir.owner())
            .cpus(start.cpus)
            .output(create(&stdout)?, create(&stderr)?)
            .piped_stdin()
            .netns(&namespace_path(start.netns))
            .and_then(Spawn::start)
            .map_err(LabError::io(action()))?;
        self.members.push(Member {
            name: start.name,
            child,
            stdout,
            stderr,
            ready: start.ready,
            ends: start.ends,
        });
        Ok(self.members.len() - 1)
    }

    /// Returns the number of children, which is the index of the next one.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the process IDs of all children, ended ones included.
    pub(crate) fn children(&self) -> impl Iterator<Item = u32> {
        self.members.iter().map(|member| member.child.id())
    }

    pub(crate) fn member(&self, place: usize) -> &Member {
        &self.members[place]
    }

    /// Waits until all children from `first` on are ready.
    pub(crate) fn wait_ready(&mut self, first: usize) -> Result<(), LabError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let is_ready = |member: &Member| {
            let (path, word) = match member.ready {
                Ready::Stdout(word) => (&member.stdout, word),
                Ready::Stderr(word) => (&member.stderr, word),
                Ready::Silent => return true,
            };
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(word))
        };
        loop {
            self.look()?;
            match self.members[first..]
                .iter()
                .find(|member| !is_ready(member))
            {
                None => return Ok(()),
                Some(late) if Instant::now() > deadline => {
                    return Err(
                        late.problem(format!("is not ready after {} s", READY_TIMEOUT.as_secs()))
                    );
                }
                Some(_) => std::thread::sleep(POLL),
            }
        }
    }

    /// Sends the start time to every child that waits for it.
    pub(crate) fn start_at(&mut self, line: &str) -> Result<(), LabError> {
        for member in &mut self.members {
            if !matches!(member.ready, Ready::Stdout(_)) {
                continue;
            }
            if let Some(mut stdin) = member.child.stdin.take() {
                let result = stdin.write_all(line.as_bytes());
                result.map_err(LabError::io(format!("telling {} to start", member.name)))?;
            }
        }
        Ok(())
    }

    /// Sends more text than the start time to a child.
    pub(crate) fn tell(&mut self, place: usize, text: &str) -> Result<(), LabError> {
        let member = &mut self.members[place];
        let result = match &mut member.child.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()),
            None => Ok(()),
        };
        result.map_err(LabError::io(format!("speaking to {}", member.name)))
    }

    /// Waits for a child that ends by itself, and returns its output.
    pub(crate) fn finish(&mut self, place: usize) -> Result<String, LabError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.look()?;
            let member = &mut self.members[place];
            if member.ended()?.is_some() {
                let path = &member.stdout;
                return std::fs::read_to_string(path).map_err(LabError::file("reading", path));
            }
            if Instant::now() > deadline {
                return Err(
                    member.problem(format!("has not ended after {} s", READY_TIMEOUT.as_secs()))
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns whether all children that end by themselves have ended.
    pub(crate) fn all_ended(&mut self) -> Result<bool, LabError> {
        self.look()?;
        for member in self.members.iter_mut().filter(|member| member.ends) {
            if member.ended()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns an error if this process received a signal to end, or if a child ended unexpectedly.
    pub(crate) fn look(&mut self) -> Result<(), LabError> {
        let signal = self.signal.load(Ordering::Relaxed);
        if signal != 0 {
            return Err(LabError::Interrupted { signal });
        }
        for member in &mut self.members {
            if let Some(status) = member.ended()?
                && !(member.ends && status.success())
            {
                let pid = member.child.id();
                let how = how_it_ended(status);
                return Err(member.problem(format!("(process {pid}) died: {how}")));
            }
        }
        Ok(())
    }

    /// Waits, and supervises the children meanwhile.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<(), LabError> {
        let end = Instant::now() + time;
        loop {
            self.look()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Kills the load and sends SIGTERM to the daemons; daemons that do not end are killed.
    pub(crate) fn end(mut self) -> Result<(), LabError> {
        let daemons = |member: &Member| matches!(member.ready, Ready::Stderr(_));
        self.members.retain(daemons);
        for member in &mut self.members {
            let result = member.child.signal(Signal::TERM);
            result.map_err(LabError::io(format!("ending {}", member.name)))?;
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        for member in &mut self.members {
            while member.ended()?.is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Member {
    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, LabError> {
        let ended = self.child.try_wait();
        ended.map_err(LabError::io(format!("waiting for {}", self.name)))
    }

    fn problem(&self, problem: String) -> LabError {
        let text = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        LabError::Child {
            who: self.name.clone(),
            what: problem,
            stderr: tail.join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_ranks_are_relative_to_the_labs_own_nice_value() {
        let nice = |rank: Rank, own| match below(rank.policy(false).unwrap(), own) {
            Policy::Share { nice, .. } => nice,
            other => panic!("{other:?}"),
        };
        for (own, monitor, infrastructure, load) in [
            (0, 0, 10, 19),
            (5, 5, 15, 19),
            (19, 19, 19, 19),
            (-5, -5, 5, 14),
        ] {
            assert_eq!(nice(Rank::Monitor, own), monitor);
            assert_eq!(nice(Rank::Infrastructure, own), infrastructure);
            assert_eq!(nice(Rank::Load, own), load);
        }
        let fifo = Rank::Monitor.policy(true).unwrap();
        assert_eq!(below(fifo, 5), fifo);
    }
}
