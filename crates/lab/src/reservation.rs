//! Keeps guests with a reservation on the core they share.
//!
//! The kernel takes a thread for `SCHED_DEADLINE` only when it may run on all
//! CPUs, so it cannot be pinned. A thread that alone has a deadline wakes where
//! it ran last; but when it has used its reservation up, the kernel pushes it to
//! another CPU as it hands out the next. Whoever watches it sees that within
//! [`EVERY`] and brings it back. The servers count where they ran, so the report
//! says what that did not catch.
//!
//! A thread that had used its reservation up and leaves the class keeps that in mind until its debt is
//! over ([`DEBT`]). If it is given the class again between the moment at which it would have had its
//! next share and that, the kernel waits for a timer that has passed, and never runs it again, not
//! even to be killed.

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

/// How often threads are looked at.
const EVERY: Nanos = Nanos::from_millis(1);
/// Before every other real-time class on a usual machine.
const FIRST: u32 = 50;
/// The periods after which no debt is left: it has its deadline in one, and has exceeded its share
/// by far less than another.
const DEBT: u64 = 3;
/// How long a process may take to stop.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Keeps processes with that reservation on the shared core. The watcher itself runs
/// as `priority` says; it saw how often a process had to be brought back.
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
                // It had done its work, and ended meanwhile.
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

/// Brings a process to the shared core and gives its threads the reservation
/// again.
///
/// Until its debt is over it is a real-time thread there. Then it is stopped: a
/// thread that runs with a wide mask and without a deadline would be taken over by
/// any idle CPU.
fn bring_back(pid: u32, deadline: Deadline, cpus: &Cpus) -> io::Result<()> {
    let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    let threads = procfs::threads(pid)?;
    for thread in &threads {
        // Where the kernel has no such reservation it may count too much.
        let _ = release_bandwidth(*thread, 0);
        // First of all on that core, so that it is there, and stops, at once.
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
    let latest = now().saturating_add(PATIENCE);
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
