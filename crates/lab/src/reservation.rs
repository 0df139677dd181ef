//! Keeps guests with a reservation on the core that they share.
//!
//! The kernel accepts a thread for `SCHED_DEADLINE` only if the thread may run on all CPUs, so it
//! cannot be pinned. A single thread with a deadline wakes where it last ran; but when it has used
//! up its reservation, the kernel pushes it to another CPU at the next replenishment. The watcher
//! detects that within [`EVERY`] and moves the thread back. The servers count requests by CPU, so
//! the report contains the remaining cases.
//!
//! A thread that had used up its reservation and leaves the class keeps that state until its debt
//! is over ([`DEBT`]). If it has the class again between the time of its next share and the end of
//! the debt, the kernel waits for a timer in the past, and never runs the thread again, not even to
//! kill it.

use crate::cpus::Cpus;
use crate::guest::{now, sleep_until};
use crate::watcher::Watcher;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::sched_setaffinity;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use tailbound_sys::procfs::{self, Reread};
use tailbound_sys::sched::{Deadline, Policy, policy, set_policy};
use tailbound_sys::thread::release_bandwidth;
use tailbound_units::Nanos;

/// Interval of the checks of threads.
const EVERY: Nanos = Nanos::from_millis(1);
/// A priority above every other real-time class on a usual computer.
const FIRST: u32 = 50;
/// The periods after which no debt is left: the thread has its deadline in one period, and has
/// exceeded its share by far less than another.
const DEBT: u64 = 3;
/// Time limit for a process to stop.
const STOP_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Keeps processes with that reservation on the shared core. The watcher itself runs with the class
/// `priority`; its result is the number of times that a process was moved back.
pub(crate) fn start(
    processes: Vec<u32>,
    deadline: Deadline,
    cpus: &Cpus,
    priority: Option<Policy>,
) -> io::Result<Watcher<u64>> {
    let cpus = *cpus;
    Watcher::start("keeper", priority, move |stopped| {
        keep(&processes, deadline, &cpus, stopped)
    })
}

fn keep(
    processes: &[u32],
    deadline: Deadline,
    cpus: &Cpus,
    stopped: &AtomicBool,
) -> io::Result<u64> {
    let mut threads = Vec::new();
    for pid in processes {
        for thread in procfs::threads(*pid)? {
            let stat = Reread::open(format!("/proc/{pid}/task/{thread}/stat"))?;
            threads.push((*pid, stat));
        }
    }
    let mut count = 0;
    while !stopped.load(Ordering::Relaxed) {
        for (pid, stat) in &mut threads {
            let away = stat.text()?.is_some_and(|text| {
                let ended = procfs::parse_state(text).is_none_or(|state| state == 'Z');
                !ended && procfs::parse_processor(text).is_some_and(|cpu| cpu != cpus.shared_core)
            });
            if !away {
                continue;
            }
            match bring_back(*pid, deadline, cpus) {
                Ok(()) => count += 1,
                // The process had done its work, and ended meanwhile.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        sleep_until(now().saturating_add(EVERY));
    }
    Ok(count)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}

/// Moves a process to the shared core and sets the reservation of its threads again.
///
/// Until its debt is over it is a real-time thread there. Then it is stopped: any idle CPU would
/// pull a thread that runs with a wide mask and without a deadline.
fn bring_back(pid: u32, deadline: Deadline, cpus: &Cpus) -> io::Result<()> {
    let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    let threads = procfs::threads(pid)?;
    for thread in &threads {
        // If the kernel has no such reservation, its count may be too high.
        let _ = release_bandwidth(*thread, 0);
        // First on that core, so that the thread arrives there and stops immediately.
        set_policy(*thread, Policy::Fifo(FIRST))?;
        sched_setaffinity(Pid::from_raw(thread.cast_signed()), &cpus.shared())?;
    }
    sleep_until(now() + Nanos(deadline.period.as_nanos() * DEBT));
    kill_process(process, Signal::STOP)?;
    let reserved = threads
        .iter()
        .try_for_each(|thread| reserve_stopped(pid, *thread, deadline, cpus));
    kill_process(process, Signal::CONT)?;
    reserved
}

fn reserve_stopped(pid: u32, thread: u32, deadline: Deadline, cpus: &Cpus) -> io::Result<()> {
    let mut stat = Reread::open(format!("/proc/{pid}/task/{thread}/stat"))?;
    let latest = now().saturating_add(STOP_TIMEOUT);
    while stat.text()?.and_then(procfs::parse_state) != Some('T') {
        if now() > latest {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep_until(now().saturating_add(Nanos::from_micros(50)));
    }
    sched_setaffinity(Pid::from_raw(thread.cast_signed()), &cpus.all)?;
    set_policy(thread, Policy::Deadline(deadline))?;
    let seen = policy(thread)?;
    if seen == Policy::Deadline(deadline) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "asked for {deadline:?}, the kernel made it {seen:?}"
    )))
}
