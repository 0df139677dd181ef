//! Sleep with the kernel's best accuracy, and the kernel's clocks.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{
    ClockId as Sleep, NanosleepRelativeResult, clock_nanosleep_absolute, clock_nanosleep_relative,
    set_current_timer_slack,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io;
use std::num::NonZeroU64;
use tailbound_units::Nanos;

/// Returns the time on `CLOCK_MONOTONIC`, which never jumps, and stands still while the computer is
/// suspended. No system call if the vDSO has this clock.
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns how often the calling thread has given away its CPU so far, which it does to wait for
/// something, and how often it has lost it to another thread.
pub fn context_switches() -> [u64; 2] {
    // SAFETY: all zeros are a `rusage`, which is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is there to be written, and of the size that the call writes.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    debug_assert_eq!(done, 0, "getrusage(2) fails for wrong arguments alone");
    [usage.ru_nvcsw, usage.ru_nivcsw].map(|number| u64::try_from(number).unwrap_or(0))
}

/// Returns the time for which the computer was suspended since it booted: the difference of
/// `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`, with an accuracy of [`CLOCKS_APART`]. `None` if the two
/// could not be read within that time.
pub fn suspended() -> Option<Nanos> {
    (0..8).find_map(|_| {
        let before = now();
        let boottime = nanos(clock_gettime(ClockId::Boottime));
        (now().since(before) <= CLOCKS_APART).then(|| boottime.since(before))
    })
}

/// The accuracy of [`suspended`].
pub const CLOCKS_APART: Nanos = Nanos::from_micros(100);

fn nanos(time: Timespec) -> Nanos {
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Nanos(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}

/// Converts a length of time for the kernel.
pub fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: (time.as_nanos() / 1_000_000_000).cast_signed(),
        tv_nsec: (time.as_nanos() % 1_000_000_000).cast_signed(),
    }
}

/// Sleeps for this long, or until a signal handler ran.
pub fn sleep(time: &Timespec) -> Result<(), io::Error> {
    match clock_nanosleep_relative(Sleep::Monotonic, time) {
        NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) => Ok(()),
        NanosleepRelativeResult::Err(errno) => Err(errno.into()),
    }
}

/// Sleeps until this time of [`now`].
pub fn sleep_until(moment: Nanos) {
    let moment = timespec(moment);
    while clock_nanosleep_absolute(Sleep::Monotonic, &moment).is_err() {}
}

/// Makes the calling thread's sleeps end on time: by default the kernel may end each up to 50 us
/// late, to end several together.
///
/// # Errors
/// The kernel has no `PR_SET_TIMERSLACK` (before 2.6.28), or a filter forbids it.
pub fn set_least_slack() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// Keeps all memory of this process in RAM, future mappings included.
///
/// # Errors
/// More than `RLIMIT_MEMLOCK` without `CAP_IPC_LOCK` (ENOMEM, EPERM).
pub fn lock_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_lasts_at_least_as_long_as_asked_for() {
        set_least_slack().unwrap();
        let wanted = Nanos::from_micros(300);
        let begin = now();
        sleep(&timespec(wanted)).unwrap();
        assert!(now().since(begin) >= wanted);
        let moment = now().saturating_add(wanted);
        sleep_until(moment);
        assert!(now() >= moment);
    }

    #[test]
    fn a_machine_that_runs_is_not_being_suspended() {
        // On a busy machine a reading may fail; a thousand do not.
        let read = || (0..1000).find_map(|_| suspended()).expect("close readings");
        let (first, second) = (read(), read());
        assert!(second.since(first) <= CLOCKS_APART);
    }

    #[test]
    fn time_goes_on_and_is_split_into_seconds() {
        assert!(now() <= now());
        assert!(thread_cpu_time() <= thread_cpu_time());
        let time = timespec(Nanos(3_000_000_007));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 7));
    }
}
