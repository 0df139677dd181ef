//! Namespaces and files of one run, which are the same for every kind of experiment of the lab.

use crate::LabError;
use crate::cpus::Cpus;
use crate::guest::{self, Task, Work};
use crate::lock::Lock;
use crate::machine;
use crate::processes::{Rank, Ready, Start, Supervisor};
use crate::run_dir::RunDir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tailbound_experiment::RunOutput;
use tailbound_sys::process::find_program;
use tailbound_sys::sched::Policy;
use tailbound_sys::user_namespace::{self, Privilege};
use tailbound_units::Nanos;

/// A program that a run needs, and Debian's package of it.
pub(crate) type Tool = (&'static str, &'static str);

/// Checks that programs are installed.
pub(crate) fn require(tools: impl IntoIterator<Item = Tool>) -> Result<(), LabError> {
    let mut tools = tools.into_iter();
    match tools.find(|(program, _)| find_program(program).is_none()) {
        Some((program, package)) => Err(LabError::Missing { program, package }),
        None => Ok(()),
    }
}

/// Phases of a task: the load before samples count, the time in which they count, and the longest
/// wait for answers after that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) grace: Nanos,
}

/// Namespaces and files of one run. Dropping the session removes all of them.
#[derive(Debug)]
pub(crate) struct Session {
    _lock: Lock,
    privilege: Privilege,
    /// The signal that requested the end of this process, or 0.
    signal: Arc<AtomicUsize>,
    run_dir: RunDir,
    /// This very program.
    pub(crate) program: PathBuf,
    pub(crate) cpus: Cpus,
    /// True if real-time classes may be set.
    pub(crate) real_time: bool,
}

impl Session {
    /// Moves this process into namespaces of its own, so it must have a single thread, and cannot
    /// return. With `keep` the run's files remain.
    pub(crate) fn enter(keep: bool) -> Result<Self, LabError> {
        // In namespaces of its own the process sees paths from the computer's root, which may
        // differ from this process's root.
        let program = std::env::current_exe().map_err(LabError::io("looking for this program"))?;
        Ok(Self {
            _lock: Lock::take()?,
            privilege: user_namespace::enter()?,
            signal: machine::watch_signals()?,
            run_dir: RunDir::create(keep)
                .map_err(LabError::io("making a directory for the run"))?,
            program,
            cpus: Cpus::detect().map_err(LabError::io("asking for the CPUs"))?,
            real_time: Rank::real_time_is_allowed(),
        })
    }

    /// Returns the directory of the run's files.
    pub(crate) fn directory(&self) -> &Path {
        self.run_dir.path()
    }

    /// Returns a supervisor without children.
    pub(crate) fn supervisor(&self) -> Supervisor<'_> {
        Supervisor::new(&self.run_dir, Arc::clone(&self.signal))
    }

    /// Returns the scheduling class of a rank.
    pub(crate) const fn policy(&self, rank: Rank) -> Option<Policy> {
        rank.policy(self.real_time)
    }

    /// Returns a result with the conditions of this computer and of the run.
    pub(crate) fn found(&self, duration: Nanos, repeat: u32) -> RunOutput {
        let mut output = RunOutput {
            conditions: machine::conditions(self.privilege, &self.cpus),
            ..RunOutput::default()
        };
        output.condition("duration_ns", duration.as_nanos());
        output.condition("repeat", repeat);
        output
    }

    /// Returns this program with these arguments as a child, off the shared core.
    pub(crate) fn start<'n>(
        &self,
        name: impl Into<String>,
        netns: &'n str,
        args: Vec<String>,
    ) -> Start<'n> {
        Start {
            args,
            ..Start::new(name, &self.program, netns, self.cpus.others)
        }
    }

    /// Writes a task; returns the paths of the task and of its outcome, which begin with `stem`.
    pub(crate) fn write_task(
        &self,
        stem: &str,
        work: Work,
        phases: Phases,
    ) -> Result<(PathBuf, PathBuf), LabError> {
        let file = |extension: &str| self.directory().join(format!("{stem}.{extension}"));
        let (path, outcome) = (file("task.json"), file("outcome.json"));
        // The outcome of an earlier measurement.
        let _ = std::fs::remove_file(&outcome);
        let task = Task {
            work,
            warmup: phases.warmup,
            duration: phases.duration,
            grace: phases.grace,
            outcome: outcome.clone(),
        };
        task.write(&path)?;
        Ok((path, outcome))
    }

    /// Writes a configuration of a host's daemon, and returns the daemon as a child. It is ready
    /// when it has opened its ports.
    pub(crate) fn daemon<'n>(
        &self,
        name: impl Into<String>,
        netns: &'n str,
        file: &str,
        config: &str,
    ) -> Result<Start<'n>, LabError> {
        let path = self.directory().join(file);
        std::fs::write(&path, config).map_err(LabError::file("writing", &path))?;
        let args = vec!["host".into(), "--config".into(), path.display().to_string()];
        Ok(Start {
            ready: Ready::Stderr("ready"),
            ..self.start(name, netns, args)
        })
    }

    /// Returns a task as a child, which is ready when it has prepared its load.
    pub(crate) fn task<'n>(
        &self,
        name: impl Into<String>,
        netns: &'n str,
        task: &Path,
    ) -> Start<'n> {
        Start {
            ready: Ready::Stdout(guest::READY),
            ..self.start(name, netns, guest::command(task))
        }
    }
}
