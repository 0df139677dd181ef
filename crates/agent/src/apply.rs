//! Carries a plan out, all of it or nothing, and puts everything back.

use super::calls::has_exited;
use super::journal::{Changes, Journal, JournalError};
use super::kernel::Kernel;
use super::observed::ThreadState;
use super::plan::Plan;
use super::step::{Call, GroupStep, ThreadStep, same, same_scheduling};
use rustix::io::Errno;
use std::io;
use tailbound_sys::thread::{NOTHING, Scheduling};

/// The result of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyResult {
    /// Number of threads and groups that were changed, each read back.
    pub changed: usize,
    /// Threads that exited meanwhile; all others are as planned.
    pub exited: Vec<String>,
}

/// The reason why a plan failed. All changes were reverted.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The state could not be written, so nothing was changed.
    #[error(transparent)]
    State(#[from] JournalError),
    /// The kernel refused a system call.
    #[error("{what}: {}{}", explain(step.as_deref(), source), after(undone))]
    Kernel {
        /// The step, in words.
        what: String,
        /// The system call, if it concerned a thread.
        step: Option<Box<Call>>,
        /// The kernel's error.
        source: io::Error,
        /// Changes that could not be reverted.
        undone: Vec<String>,
    },
    /// The kernel took a step, but not as asked for.
    #[error(
        "{what}: the kernel took it, but {seen} reads back; {}{}",
        "another program changes the same thread, or this kernel does not support the requested \
            setting",
        after(undone)
    )]
    ReadBack {
        /// The step, in words.
        what: String,
        /// The value that was read back.
        seen: String,
        /// Changes that could not be reverted.
        undone: Vec<String>,
    },
}

fn after(undone: &[String]) -> String {
    if undone.is_empty() {
        "; everything is as it was before".to_owned()
    } else {
        format!("; NOT put back: {}", undone.join("; "))
    }
}

/// Returns the meaning and the remedy of an errno of a system call on a thread.
fn explain(step: Option<&Call>, error: &io::Error) -> String {
    let deadline = matches!(step, Some(Call::Schedule(to)) if to.is_deadline());
    let text = match (Errno::from_io_error(error), step) {
        (Some(Errno::PERM), _) if deadline => {
            "EPERM: the thread's CPU mask does not cover its root domain any more (a cpuset or its \
             pinning changed meanwhile), or real time has no budget; look at its cpuset, and at \
             kernel.sched_rt_runtime_us"
        }
        (Some(Errno::PERM), Some(Call::Schedule(_) | Call::Release(_))) => {
            "EPERM: this takes CAP_SYS_NICE; run as root, or in a service with \
             AmbientCapabilities=CAP_SYS_NICE"
        }
        (Some(Errno::PERM), Some(Call::Affinity(_))) => "EPERM: another user's thread; run as root",
        (Some(Errno::BUSY), _) if deadline => {
            "EBUSY: the kernel reports that the bandwidth is taken, although the visible \
                reservations leave room. Some kernels (seen on 6.18) keep counting threads that \
                left SCHED_DEADLINE while asleep. They count anew when root domains are rebuilt: \
                write 0, then 1, to cpuset.sched_load_balance of the root cpuset (cgroup v1), or \
                create and remove a cpuset partition (v2)"
        }
        (Some(Errno::BUSY), Some(Call::Affinity(_))) => {
            "EBUSY: another program has given the thread a deadline class; remove that class \
                first"
        }
        (Some(Errno::INVAL), Some(Call::Affinity(_))) => {
            "EINVAL: its cpuset leaves it none of these CPUs; look at its cpuset"
        }
        (Some(Errno::INVAL), Some(Call::Schedule(_) | Call::Release(_))) => {
            "EINVAL: this kernel does not take these parameters; see tailbound doctor"
        }
        (Some(Errno::ACCESS | Errno::PERM | Errno::ROFS), None) => {
            "the control group belongs to another user, or is mounted read-only; run as root, \
                and in a service with ProtectControlGroups=no"
        }
        _ => return error.to_string(),
    };
    text.to_owned()
}

/// Reason why a step failed.
enum Failure {
    Kernel(Option<Box<Call>>, io::Error),
    ReadBack(String),
}

/// Carries `plan` out: writes to the journal what is there, then changes and
/// reads back thread by thread. Threads that have ended are passed over.
///
/// # Errors
/// The first step that failed; all before it have been undone.
pub fn apply(
    kernel: &mut impl Kernel,
    journal: &mut Journal,
    plan: &Plan,
) -> Result<ApplyResult, ApplyError> {
    if plan.is_empty() {
        return Ok(ApplyResult {
            exited: plan.exited.clone(),
            ..ApplyResult::default()
        });
    }
    let before = journal.changes().clone();
    journal.update(|changes| changes.add(plan))?;
    let mut applied = ApplyResult {
        exited: plan.exited.clone(),
        ..ApplyResult::default()
    };
    let mut groups_done = Vec::new();
    let mut threads_done = Vec::new();
    let mut failed = None;
    for step in &plan.groups {
        groups_done.push(step);
        if let Err(failure) = change_group(kernel, step) {
            failed = Some((step.to_string(), failure));
            break;
        }
        applied.changed += 1;
    }
    for step in &plan.threads {
        if failed.is_some() {
            break;
        }
        threads_done.push(step);
        match change_thread(kernel, step) {
            Ok(true) => applied.changed += 1,
            Ok(false) => applied.exited.push(step.name.clone()),
            Err(failure) => failed = Some((step.to_string(), failure)),
        }
    }
    let Some((what, failure)) = failed else {
        return Ok(applied);
    };
    let undone = undo(kernel, &threads_done, &groups_done);
    if undone.is_empty() {
        journal.update(|changes| *changes = before)?;
    }
    Err(match failure {
        Failure::Kernel(step, source) => ApplyError::Kernel {
            what,
            step,
            source,
            undone,
        },
        Failure::ReadBack(seen) => ApplyError::ReadBack { what, seen, undone },
    })
}

/// Reverts the completed steps, the last step first; returns the errors.
fn undo(kernel: &mut impl Kernel, threads: &[&ThreadStep], groups: &[&GroupStep]) -> Vec<String> {
    let mut failed = Vec::new();
    for step in threads.iter().rev() {
        failed.extend(put_back(kernel, step).err());
    }
    for step in groups.iter().rev() {
        failed.extend(put_back_group(kernel, step).err());
    }
    failed
}

fn change_group(kernel: &mut impl Kernel, step: &GroupStep) -> Result<(), Failure> {
    let set = kernel.set_weight(&step.directory, step.kind, step.after);
    set.map_err(|error| Failure::Kernel(None, error))?;
    match kernel.weight(&step.directory, step.kind) {
        Some(seen) if seen == step.after => Ok(()),
        seen => Err(Failure::ReadBack(format!("a weight of {seen:?}"))),
    }
}

/// Changes a thread and reads it back; false when it has exited. It is looked at before
/// each system call and after the last: numbers are used again, and what a call did to the
/// next thread of that number is undone.
fn change_thread(kernel: &mut impl Kernel, step: &ThreadStep) -> Result<bool, Failure> {
    let failed = |step, error| Failure::Kernel(step, error);
    let mut made = None;
    for call in step.calls() {
        if kernel
            .state(step.thread)
            .map_err(|e| failed(None, e))?
            .is_none()
        {
            undo_to_successor(kernel, step, made)?;
            return Ok(false);
        }
        match kernel.call(step.thread, &call) {
            Ok(()) => made = Some(call),
            // Only makes room; without it the kernel may count too much.
            Err(_) if matches!(call, Call::Release(_)) => {}
            Err(error) if has_exited(&error) => return Ok(false),
            Err(error) => return Err(failed(Some(Box::new(call)), error)),
        }
    }
    match kernel.state(step.thread).map_err(|e| failed(None, e))? {
        None => {
            undo_to_successor(kernel, step, made)?;
            Ok(false)
        }
        Some(seen) if same(&seen, &step.after) => Ok(true),
        Some(seen) => Err(Failure::ReadBack(format!(
            "{} on CPUs {}",
            seen.scheduling, seen.cpus
        ))),
    }
}

/// Reverts the last call on a thread that has reused the number of an exited thread: it receives
/// the default state of a new thread. A wider mask is kept.
fn undo_to_successor(
    kernel: &mut impl Kernel,
    step: &ThreadStep,
    made: Option<Call>,
) -> Result<(), Failure> {
    let failed = |error| Failure::Kernel(None, error);
    let Some(seen) = kernel.successor(step.thread).map_err(failed)? else {
        return Ok(());
    };
    let expected = match made {
        Some(Call::Schedule(expected)) => expected,
        Some(Call::Release(before)) => Scheduling {
            flags: before.flags,
            ..NOTHING
        },
        Some(Call::Affinity(_)) | None => return Ok(()),
    };
    if !same_scheduling(&seen, &expected) {
        return Ok(());
    }
    if seen.is_deadline() {
        // Only makes room, as on every way out of a deadline.
        let _ = kernel.call(step.thread, &Call::Release(seen));
    }
    match kernel.call(step.thread, &Call::Schedule(Scheduling::PLAIN)) {
        Err(error) if !has_exited(&error) => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Restores a thread's state before `step`, from any current state.
fn put_back(kernel: &mut impl Kernel, step: &ThreadStep) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", step.name);
    let Some(seen) = kernel.state(step.thread).map_err(failed)? else {
        return Ok(());
    };
    let back = ThreadStep {
        before: seen,
        after: step.before,
        home: None,
        ..step.clone()
    };
    if same(&back.before, &back.after) {
        return Ok(());
    }
    match change_thread(kernel, &back) {
        Ok(_) => Ok(()),
        Err(Failure::Kernel(call, error)) => Err(format!(
            "{}: {}",
            step.name,
            explain(call.as_deref(), &error)
        )),
        Err(Failure::ReadBack(seen)) => Err(format!("{}: {seen}", step.name)),
    }
}

fn put_back_group(kernel: &mut impl Kernel, step: &GroupStep) -> Result<(), String> {
    match kernel.weight(&step.directory, step.kind) {
        Some(weight) if weight != step.before => {
            let set = kernel.set_weight(&step.directory, step.kind, step.before);
            set.map_err(|error| format!("{}: {error}", step.directory.display()))
        }
        _ => Ok(()),
    }
}

/// The result of a restoration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of restored threads and groups.
    pub restored: usize,
    /// Number of threads that had exited and groups that were gone.
    pub exited: usize,
    /// Threads and groups that another program changed after the agent; they stay as they are.
    pub drifted: Vec<String>,
    /// Changes that could not be restored, with the reasons. They stay in the journal.
    pub failed: Vec<String>,
}

/// Restores the entries of the journal that `which` selects.
///
/// Threads that another program changed after the agent stay as they are and are reported.
///
/// # Errors
/// The state cannot be written.
pub fn restore(
    kernel: &mut impl Kernel,
    journal: &mut Journal,
    which: impl Fn(&ThreadStep) -> bool,
) -> Result<Restored, JournalError> {
    let mut restored = Restored::default();
    let Changes {
        threads,
        groups,
        path,
    } = journal.changes().clone();
    let mut remaining = Changes {
        path,
        ..Changes::default()
    };
    for (thread, step) in threads {
        if !which(&step) {
            remaining.threads.insert(thread, step);
            continue;
        }
        match restore_thread(kernel, &step) {
            Ok(ThreadOutcome::Restored) => restored.restored += 1,
            Ok(ThreadOutcome::Exited) => restored.exited += 1,
            Ok(ThreadOutcome::Drifted(now)) => {
                restored.drifted.push(format!("{}: {now}", step.name));
            }
            Err(why) => {
                restored.failed.push(why);
                remaining.threads.insert(thread, step);
            }
        }
    }
    for (directory, step) in groups {
        let in_use = |step: &ThreadStep| step.group.as_ref() == Some(&directory);
        if remaining.threads.values().any(in_use) {
            remaining.groups.insert(directory, step);
            continue;
        }
        match kernel.weight(&step.directory, step.kind) {
            None => restored.exited += 1,
            Some(weight) if weight == step.after || weight == step.before => {
                match put_back_group(kernel, &step) {
                    Ok(()) => restored.restored += 1,
                    Err(why) => {
                        restored.failed.push(why);
                        remaining.groups.insert(directory, step);
                    }
                }
            }
            Some(weight) => restored.drifted.push(format!(
                "group {}: {} {weight}",
                directory.display(),
                step.kind.file()
            )),
        }
    }
    journal.update(|changes| *changes = remaining)?;
    Ok(restored)
}

/// The result for one thread.
enum ThreadOutcome {
    Restored,
    Exited,
    /// Another program changed the state to this value.
    Drifted(String),
}

fn restore_thread(kernel: &mut impl Kernel, step: &ThreadStep) -> Result<ThreadOutcome, String> {
    let seen = kernel
        .state(step.thread)
        .map_err(|error| format!("{}: {error}", step.name))?;
    let Some(seen) = seen else {
        return Ok(ThreadOutcome::Exited);
    };
    let ThreadStep { before, after, .. } = step;
    let mut target = seen;
    let mut drifted = Vec::new();
    if is_ours(&seen.scheduling, after) {
        target.scheduling = before.scheduling;
    } else if !same_scheduling(&seen.scheduling, &before.scheduling) {
        drifted.push(format!("is now {}", seen.scheduling));
    }
    if seen.cpus == after.cpus || step.home.is_some_and(|home| is_home(&seen, home)) {
        target.cpus = before.cpus;
    } else if seen.cpus != before.cpus {
        drifted.push(format!("is now on CPUs {}", seen.cpus));
    }
    // Somebody else's deadline does not go with a narrow mask.
    if target.scheduling.is_deadline() && !before.scheduling.is_deadline() {
        target.cpus = seen.cpus;
    }
    let back = ThreadStep {
        before: target,
        after: target,
        ..step.clone()
    };
    put_back(kernel, &back)?;
    if drifted.is_empty() {
        Ok(ThreadOutcome::Restored)
    } else {
        Ok(ThreadOutcome::Drifted(drifted.join(", ")))
    }
}

/// Returns true if the agent set this scheduling, or passes through it on the way.
fn is_ours(seen: &Scheduling, after: &ThreadState) -> bool {
    let passing = Scheduling {
        flags: seen.flags,
        ..NOTHING
    };
    let between = Scheduling {
        flags: after.scheduling.flags,
        ..Scheduling::PLAIN
    };
    same_scheduling(seen, &after.scheduling)
        || *seen == passing
        || (after.scheduling.is_deadline() && same_scheduling(seen, &between))
}

/// Returns true if a thread is on its home CPU only, as on the way to a reservation.
fn is_home(seen: &ThreadState, home: u32) -> bool {
    seen.cpus.count() == 1 && seen.cpus.contains(home)
}

#[cfg(test)]
mod tests;
