//! Child processes that cannot outlive their parent.

use crate::sched::{Policy, set_policy};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest time for which a child with a real-time class may compute without sleeping. It is
/// longer than any flood of the lab lasts, for a flooded daemon may find no empty queue in all of
/// it. The kernel keeps a twentieth of the CPU for others meanwhile.
pub const RUNAWAY: Duration = Duration::from_secs(30);

/// Returns the path of a program in `PATH`, or in the directories of system programs, which an
/// ordinary user's `PATH` lacks (Debian keeps `tc` and `bridge` there).
pub fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(&name))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

/// Returns the path from [`find_program`]; if there is none, the name itself, so that the error of
/// starting it names the program.
pub fn program_path(name: impl AsRef<Path>) -> PathBuf {
    find_program(&name).unwrap_or_else(|| name.as_ref().to_owned())
}

/// A program to start, with its settings.
#[derive(Debug)]
pub struct Spawn {
    command: Command,
    netns: Option<File>,
    cpus: Option<CpuSet>,
    policy: Option<Policy>,
    /// The longest time for which it may compute without sleeping, if its class is a real-time one.
    runaway: Duration,
}

impl Spawn {
    /// Prepares `program`; [`find_program`] looks up a bare name.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program_path(program.as_ref()));
        command.stdin(Stdio::null());
        Self {
            command,
            netns: None,
            cpus: None,
            policy: None,
            runaway: RUNAWAY,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable; the rest is inherited.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the program in the network namespace that `path` names.
    pub fn netns(mut self, path: &Path) -> io::Result<Self> {
        self.netns = Some(File::open(path)?);
        Ok(self)
    }

    /// Runs the program on these CPUs only.
    #[must_use]
    pub fn cpus(mut self, cpus: CpuSet) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Runs the program in this scheduling class. A real-time program that never sleeps would take
    /// its CPU from all others: the kernel kills it after [`RUNAWAY`].
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sends the program's output to files.
    #[must_use]
    pub fn output(mut self, stdout: File, stderr: File) -> Self {
        self.command.stdout(stdout).stderr(stderr);
        self
    }

    /// Makes the program's standard input a pipe: [`Child::stdin`].
    #[must_use]
    pub fn piped_stdin(mut self) -> Self {
        self.command.stdin(Stdio::piped());
        self
    }

    /// Starts the program as the leader of a process group of its own, so that a Ctrl-C for the
    /// parent does not reach it. The kernel kills it when the calling *thread* ends for any reason:
    /// call this from the main thread.
    ///
    /// # Errors
    /// The program is missing, or the namespace cannot be entered.
    pub fn start(self) -> io::Result<Child> {
        let Self {
            mut command,
            netns,
            cpus,
            policy,
            runaway,
        } = self;
        let parent = rustix::process::getpid();
        let limit = Some(runaway.as_micros() as u64);
        let most = Rlimit {
            current: limit,
            maximum: limit,
        };
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes bare system calls only,
        // which neither allocate nor lock; all it uses was made before the fork.
        unsafe {
            command.pre_exec(move || {
                if let Some(netns) = &netns {
                    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
                }
                if let Some(cpus) = &cpus {
                    sched_setaffinity(None, cpus)?;
                }
                if let Some(policy) = policy {
                    rustix::process::setrlimit(Resource::Rttime, most)?;
                    set_policy(0, policy)?;
                }
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have died before the line above took effect.
                if rustix::process::getppid() != Some(parent) {
                    return Err(io::Error::from(rustix::io::Errno::SRCH));
                }
                Ok(())
            });
        }
        let mut process = command.spawn()?;
        Ok(Child {
            stdin: process.stdin.take(),
            process,
            ended: None,
        })
    }
}

/// A running child. Dropping it kills its process group and reaps it.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    ended: Option<ExitStatus>,
    /// The other end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
}

impl Child {
    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the exit status, if the child has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Sends a signal to the process group; nothing if the child has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        Ok(rustix::process::kill_process_group(
            Pid::from_child(&self.process),
            signal,
        )?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Nothing is left to do about an error here: the kernel kills the
            // child when this process ends.
            let group = Pid::from_child(&self.process);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let begin = Instant::now();
            while matches!(self.process.try_wait(), Ok(None)) {
                if begin.elapsed() > HELD {
                    let _ = set_policies(self.id(), Policy::Normal);
                    let _ = self.process.wait();
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// The longest time for a killed child to end before its class is considered the reason. A thread
/// that has used its reservation up does not run before the next period, not even to end, and Linux
/// 6.18 was seen not to begin that period for ten minutes.
const HELD: Duration = Duration::from_millis(200);

/// Sets the scheduling class of all threads of a process.
///
/// # Errors
/// The errors of [`set_policy`], or the process is gone.
pub fn set_policies(process: u32, policy: Policy) -> io::Result<()> {
    let mut threads = crate::procfs::threads(process)?.into_iter();
    threads.try_for_each(|thread| set_policy(thread, policy))
}

/// Returns the status as text: `exit status 1`, `killed by SIGKILL`.
pub fn how_it_ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(number) => match Signal::from_named_raw(number) {
            Some(signal) => format!("killed by {}", signal_name(signal)),
            None => format!("killed by signal {number}"),
        },
        None => format!("exit status {}", status.code().unwrap_or(-1)),
    }
}

fn signal_name(signal: Signal) -> String {
    match signal {
        Signal::KILL => "SIGKILL".into(),
        Signal::TERM => "SIGTERM".into(),
        Signal::INT => "SIGINT".into(),
        Signal::SEGV => "SIGSEGV".into(),
        Signal::ABORT => "SIGABRT".into(),
        other => format!("signal {}", other.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::required::{Part, skipped};
    use crate::sched::Deadline;
    use tailbound_units::Nanos;

    fn sleeper() -> Child {
        Spawn::new("sleep").args(["60"]).start().unwrap()
    }

    #[test]
    fn a_child_leads_a_process_group_of_its_own() {
        let child = sleeper();
        let pid = Pid::from_raw(child.id().cast_signed());
        assert_eq!(rustix::process::getpgid(pid).ok(), pid);
    }

    #[test]
    fn dropping_a_child_ends_it() {
        let child = sleeper();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn a_child_whose_reservation_is_used_up_is_ended_all_the_same() {
        // The longest period that Linux takes by default.
        let reserved = Policy::Deadline(Deadline {
            runtime: Nanos::from_millis(1),
            deadline: Nanos::from_secs(4),
            period: Nanos::from_secs(4),
        });
        if let Err(error) = crate::sched::probe(reserved) {
            skipped(Part::SchedDeadline, error);
            return;
        }
        // Others may take the CPU meanwhile: once in three is enough.
        let ended_at_once = (0..3).any(|_| {
            let spin = Spawn::new("sh").args(["-c", "while :; do :; done"]);
            let child = spin.start().unwrap();
            set_policy(child.id(), reserved).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let begin = Instant::now();
            drop(child);
            begin.elapsed() < Duration::from_secs(2)
        });
        assert!(ended_at_once);
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(sleeper).join().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::yield_now();
        };
        assert_eq!(how_it_ended(status), "killed by SIGKILL");
    }

    #[test]
    fn a_runaway_with_a_real_time_class_is_killed() {
        let fifo = Policy::Fifo(1);
        if let Err(error) = crate::sched::probe(fifo) {
            skipped(Part::SchedFifo, error);
            return;
        }
        let mut spin = Spawn::new("sh").args(["-c", "while :; do :; done"]);
        spin.runaway = Duration::from_millis(100);
        let mut child = spin.policy(fifo).start().unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(how_it_ended(status), "killed by SIGKILL");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(Spawn::new("/nonexistent/program").start().is_err());
    }
}
