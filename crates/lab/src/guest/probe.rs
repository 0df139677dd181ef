//! Runs `tailbound probe` and keeps its report, independently of its verdict.

use super::{Outcome, Starter, leave, sleep_until};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tailbound_report::Stats;
use tailbound_sys::process::set_policies;
use tailbound_sys::procfs;
use tailbound_sys::sched::{Policy, policy, set_policy};
use tailbound_units::Nanos;

/// The output of `tailbound probe --output json`, as far as the lab reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// `GOOD`, `BAD`, `UNSURE` or `INCONCLUSIVE`.
    pub verdict: String,
    /// The verdict and its reason.
    pub line: String,
    /// The report of each vCPU.
    pub cpus: Vec<ProbedCpu>,
}

/// The report of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbedCpu {
    /// Late sleeps.
    pub late: u64,
    /// Late sleeps that the guest itself delayed.
    pub ours: u64,
    /// Late sleeps during CPU time that the hypervisor reports as stolen.
    pub stolen: u64,
    /// Late sleeps without an explanation.
    pub unexplained: u64,
    /// The share of the vCPU that the probe used.
    pub cost: f64,
    /// Length of the probe in nanoseconds.
    pub elapsed_ns: u64,
    /// Durations of its sleeps.
    pub sleep_ns: Stats,
}

pub(super) fn run(
    starter: &Starter<'_>,
    args: &[String],
    after: Nanos,
    result: Option<&Path>,
) -> io::Result<()> {
    let schedule = starter.ready()?;
    sleep_until(schedule.start.saturating_add(after));
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("probe").args(args).args(["--output", "json"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = start(&mut command)?.wait_with_output()?;
    // The exit code is the verdict.
    let report = serde_json::from_slice(&output.stdout).map_err(|error| {
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!(
            "{error} in its output; it said: {}",
            stderr_text.trim()
        ))
    })?;
    if let Some(result) = result {
        leave(result, &output.stdout)?;
    }
    starter.finish(&Outcome {
        probe: Some(report),
        ..Outcome::default()
    })
}

/// Interval of the checks whether the probe sleeps.
const POLL: Duration = Duration::from_millis(1);

/// Starts the probe. If this process has a real-time class, the probe has this class from its first
/// sleep on: before, it loads itself and locks its memory, some milliseconds in which all other
/// threads of that class would wait for its core, and neighbouring probes there would be late.
fn start(command: &mut Command) -> io::Result<Child> {
    let own = policy(0)?;
    if !matches!(own, Policy::Fifo(_)) {
        return command.spawn();
    }
    set_policy(0, Policy::Normal)?;
    let child = command.spawn();
    set_policy(0, own)?;
    let mut child = child?;
    // The probe sleeps in threads of their own.
    while procfs::threads(child.id()).is_ok_and(|threads| threads.len() < 2) {
        if child.try_wait()?.is_some() {
            return Ok(child);
        }
        std::thread::sleep(POLL);
    }
    match set_policies(child.id(), own) {
        // The probe has ended.
        Err(error) if child.try_wait()?.is_none() => Err(error),
        _ => Ok(child),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_sys::probe::required::{Part, skipped};

    /// Runs `run` with a real-time class, on a thread of its own that starts no other process;
    /// skipped if no such class is available.
    fn in_real_time(run: impl FnOnce(Policy) + Send + 'static) {
        let fifo = Policy::Fifo(1);
        if let Err(error) = tailbound_sys::sched::probe(fifo) {
            skipped(Part::SchedFifo, error);
            return;
        }
        let thread = std::thread::spawn(move || {
            set_policy(0, fifo).unwrap();
            run(fifo);
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_program_has_a_real_time_class_once_it_has_threads_and_not_before() {
        in_real_time(|fifo| {
            // Its class while it has one thread, then a second one, then its class again.
            let text = "import os, threading, time\n\
                        print(os.sched_getscheduler(0), flush=True)\n\
                        time.sleep(0.02)\n\
                        print(os.sched_getscheduler(0), flush=True)\n\
                        threading.Thread(target=time.sleep, args=[9]).start()\n\
                        while not os.sched_getscheduler(0): time.sleep(0.001)\n\
                        print(os.sched_getscheduler(0), flush=True)\n\
                        os._exit(0)";
            let mut command = Command::new("python3");
            command.args(["-c", text]).stdout(Stdio::piped());
            let output = start(&mut command).unwrap().wait_with_output().unwrap();
            assert_eq!(policy(0).unwrap(), fifo);
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n0\n1\n");
        });
    }

    #[test]
    fn a_program_that_ends_at_once_is_not_waited_for() {
        in_real_time(|_| {
            let child = start(&mut Command::new("true")).unwrap();
            assert!(child.wait_with_output().unwrap().status.success());
        });
    }
}
