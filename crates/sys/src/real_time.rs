//! A real-time class for one thread that must be there when it is due, and the limits that keep it
//! from taking a CPU for good.

use crate::sched::{self, Attributes, Policy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tailbound_units::Nanos;

/// `SCHED_FLAG_RESET_ON_FORK`: threads that this one starts have no real-time class.
const RESET_ON_FORK: u64 = 1;

/// The thread whose class ends when it has spun for too long; 0 for none.
static SPINNER: AtomicU32 = AtomicU32::new(0);
/// The priority of the class: if another is set, another process set it and decides about it.
static PRIORITY: AtomicU32 = AtomicU32::new(0);
/// True if the kernel has ended the class.
static SPUN: AtomicBool = AtomicBool::new(false);

/// The priority of threads that the loop waits for; 0 for their own proportional share.
static HELPERS: AtomicU32 = AtomicU32::new(0);

/// Sets the priority in `SCHED_FIFO` of all threads with a [`Helper`], from their next
/// [`Helper::follow`] on; 0 for the share that they started with.
pub fn set_helpers(priority: u32) {
    HELPERS.store(priority, Ordering::Relaxed);
}

/// The class of a thread that the loop waits for, such as one that calls a driver in its place.
#[derive(Debug, Default)]
pub struct Helper {
    priority: u32,
    /// The thread has its own share for good.
    is_plain: bool,
}

impl Helper {
    /// Ends the class for good, for a thread whose work turned out to be long.
    #[cold]
    pub fn give_up(&mut self) {
        self.is_plain = true;
        self.set(0);
    }

    /// Sets the class of the calling thread that [`set_helpers`] wants. A thread stays in its class
    /// if the system refuses the other one.
    #[inline]
    pub fn follow(&mut self) {
        let wanted = HELPERS.load(Ordering::Relaxed);
        if wanted != self.priority && !self.is_plain {
            self.set(wanted);
        }
    }

    fn set(&mut self, priority: u32) {
        if priority == self.priority {
            return;
        }
        self.priority = priority;
        let share = Attributes {
            size: sched::SIZE,
            flags: RESET_ON_FORK,
            ..Attributes::default()
        };
        let class = if priority == 0 { share } else { fifo(priority) };
        let _ = sched::write(0, &class);
    }
}

/// A thread's class as it was before it got a real-time one.
#[derive(Debug)]
pub struct Before {
    nice: i32,
    slice: u64,
}

/// Sets `SCHED_FIFO` with this priority, 1 to 99, for the calling thread, and not for threads that
/// it starts. Returns its class before.
///
/// Once it has computed for `longest` without a wait, this class ends by `RLIMIT_RTTIME`
/// (in ticks, and of one thread of the process at a time): see [`has_spun`].
///
/// # Errors
/// EPERM without `CAP_SYS_NICE` and an `RLIMIT_RTPRIO` of the priority, or where the thread's
/// control group has no real-time budget.
pub fn take(priority: u32, longest: Nanos) -> io::Result<Before> {
    let before = sched::read(0)?;
    PRIORITY.store(priority, Ordering::Relaxed);
    limit_spinning(longest)?;
    sched::write(0, &fifo(priority))?;
    Ok(Before {
        nice: before.nice,
        slice: before.runtime,
    })
}

/// Sets the lowest real-time class for the calling thread, for a trial: it ends with the thread.
///
/// # Errors
/// As for [`take`].
pub fn try_it() -> io::Result<()> {
    sched::write(0, &fifo(1))
}

fn fifo(priority: u32) -> Attributes {
    Attributes {
        size: sched::SIZE,
        policy: libc::SCHED_FIFO.cast_unsigned(),
        flags: RESET_ON_FORK,
        priority,
        ..Attributes::default()
    }
}

/// Restores the calling thread's former proportional share.
///
/// # Errors
/// The kernel refuses it.
pub fn leave(before: &Before) -> io::Result<()> {
    sched::write(
        0,
        &Attributes {
            size: sched::SIZE,
            flags: RESET_ON_FORK,
            nice: before.nice,
            runtime: before.slice,
            ..Attributes::default()
        },
    )
}

/// True if the calling thread has `SCHED_FIFO` with this priority.
///
/// # Errors
/// The kernel refuses the query.
pub fn is_held(priority: u32) -> io::Result<bool> {
    Ok(sched::policy(0)? == Policy::Fifo(priority))
}

/// True if the thread that took a real-time class last has lost it since, as it had spun for too
/// long. The next call returns false.
pub fn has_spun() -> bool {
    SPUN.load(Ordering::Relaxed) && SPUN.swap(false, Ordering::Relaxed)
}

/// Sets the kernel's limit of time without a wait, whose signal (SIGXCPU) ends the calling thread's
/// class.
fn limit_spinning(longest: Nanos) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = end_class;
    // SAFETY: an all-zero `sigaction` is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is a live struct, and the handler does nothing but one system call and
    // atomic stores, which are async-signal-safe.
    if unsafe { libc::sigaction(libc::SIGXCPU, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    SPINNER.store(
        rustix::thread::gettid().as_raw_pid().cast_unsigned(),
        Ordering::Relaxed,
    );
    // The kernel raises the soft limit by a second with each signal.
    let limit = getrlimit(Resource::Rttime);
    let wanted = longest.as_nanos() / 1000;
    let limit = Rlimit {
        current: Some(limit.maximum.map_or(wanted, |most| most.min(wanted))),
        ..limit
    };
    Ok(setrlimit(Resource::Rttime, limit)?)
}

extern "C" fn end_class(_: libc::c_int) {
    let thread = SPINNER.load(Ordering::Relaxed);
    if thread == 0 {
        return;
    }
    let share = Attributes {
        size: sched::SIZE,
        flags: RESET_ON_FORK,
        ..Attributes::default()
    };
    // SAFETY: `errno` is this thread's, and the calls may change it before the interrupted code
    // reads it.
    let errno = unsafe { *libc::__errno_location() };
    let is_own = |class: Attributes| {
        class.policy == libc::SCHED_FIFO.cast_unsigned()
            && class.priority == PRIORITY.load(Ordering::Relaxed)
    };
    if sched::read(thread).is_ok_and(is_own) {
        let _ = sched::write(thread, &share);
        SPUN.store(true, Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_have_the_class_of_the_loop_as_long_as_it_is_wanted() {
        let thread = std::thread::spawn(|| {
            if let Err(error) = sched::probe(Policy::Fifo(1)) {
                return skipped(Part::SchedFifo, error);
            }
            let mut helper = Helper::default();
            helper.follow();
            assert_eq!(sched::policy(0).unwrap(), Policy::Normal);
            for (priority, policy) in [(1, Policy::Fifo(1)), (0, Policy::Normal)] {
                set_helpers(priority);
                helper.follow();
                assert_eq!(sched::policy(0).unwrap(), policy);
            }
            set_helpers(1);
            helper.follow();
            helper.give_up();
            helper.follow();
            assert_eq!(sched::policy(0).unwrap(), Policy::Normal);
            set_helpers(0);
        });
        thread.join().unwrap();
    }
    use crate::probe::required::{Part, skipped};
    use std::time::{Duration, Instant};

    /// In one test, as the limit is the process's.
    #[test]
    fn a_spinning_thread_loses_its_class_and_children_never_get_it() {
        let thread = std::thread::spawn(|| {
            let before = match take(1, Nanos::from_millis(50)) {
                Ok(before) => before,
                Err(error) => return skipped(Part::SchedFifo, error),
            };
            assert!(is_held(1).unwrap());
            let child = std::thread::spawn(|| sched::policy(0).unwrap());
            assert_eq!(child.join().unwrap(), Policy::Normal);
            leave(&before).unwrap();
            assert_eq!(sched::policy(0).unwrap(), Policy::Normal);
            assert!(!has_spun());

            take(1, Nanos::from_millis(50)).unwrap();
            let begin = Instant::now();
            while is_held(1).unwrap() {
                assert!(
                    begin.elapsed() < Duration::from_secs(5),
                    "it spins for ever"
                );
            }
            assert!(has_spun() && !has_spun());
            // The class of another process stays, whatever the kernel's signals.
            take(1, Nanos::from_millis(50)).unwrap();
            sched::set_policy(0, Policy::Fifo(2)).unwrap();
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(150) {
                assert!(is_held(2).unwrap());
            }
            assert!(!has_spun());
            sched::set_policy(0, Policy::Normal).unwrap();
            // It may have it again, with the same limit.
            take(1, Nanos::from_millis(50)).unwrap();
            assert!(is_held(1).unwrap());
            std::thread::sleep(Duration::from_millis(1));
            leave(&before).unwrap();
        });
        thread.join().unwrap();
    }
}
