//! Scheduling classes of a thread: `sched_setattr(2)`, which no safe library
//! wraps.

use std::io;
use tailbound_units::Nanos;

/// The reservation of a `SCHED_DEADLINE` thread: `runtime` of CPU in each
/// `period`, by `deadline` after its start. The kernel wants
/// runtime ≤ deadline ≤ period and runtime ≥ 1024 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// The deadline, after the period's start.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
}

/// A thread's scheduling class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: a proportional share.
    Normal,
    /// `SCHED_OTHER` with a weight and a time slice. A thread with a shorter slice
    /// runs sooner when it wakes; kernels before 6.12 ignore it.
    Share {
        /// 0 to 19: the higher, the smaller the share. Raising the value takes no privilege.
        nice: i32,
        /// 0.1 ms to 100 ms; zero is the kernel's default.
        slice: Nanos,
    },
    /// `SCHED_DEADLINE`: a reservation.
    Deadline(Deadline),
    /// `SCHED_FIFO` with this priority, 1 to 99: ahead of every proportional share.
    Fifo(u32),
    /// Another class, by its number.
    Other(u32),
}

/// `struct sched_attr` as of Linux 3.14; later kernels accept this size.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

pub(crate) const SIZE: u32 = size_of::<Attributes>() as u32;
const NORMAL: u32 = libc::SCHED_OTHER.cast_unsigned();
const FIFO: u32 = libc::SCHED_FIFO.cast_unsigned();
const DEADLINE: u32 = libc::SCHED_DEADLINE.cast_unsigned();

/// Sets the scheduling class of a thread (0: the calling one).
///
/// # Errors
/// All except proportional shares need `CAP_SYS_NICE` in the initial user namespace (EPERM).
/// `SCHED_DEADLINE` also needs a CPU mask that covers the whole root domain (EPERM), and free
/// bandwidth (EBUSY). [`io::ErrorKind::Unsupported`] for [`Policy::Other`].
pub fn set_policy(thread: u32, policy: Policy) -> io::Result<()> {
    let mut attributes = Attributes {
        size: SIZE,
        ..Attributes::default()
    };
    match policy {
        Policy::Normal => attributes.policy = NORMAL,
        Policy::Share { nice, slice } => {
            attributes.policy = NORMAL;
            attributes.nice = nice;
            attributes.runtime = slice.as_nanos();
        }
        Policy::Fifo(priority) => {
            attributes.policy = FIFO;
            attributes.priority = priority;
        }
        Policy::Deadline(deadline) => {
            attributes.policy = DEADLINE;
            attributes.runtime = deadline.runtime.as_nanos();
            attributes.deadline = deadline.deadline.as_nanos();
            attributes.period = deadline.period.as_nanos();
        }
        Policy::Other(_) => return Err(io::ErrorKind::Unsupported.into()),
    }
    write(thread, &attributes)
}

pub(crate) fn write(thread: u32, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads `size` bytes from the pointer, which is to a
    // live struct of that size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            thread,
            &raw const *attributes,
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(crate) fn read(thread: u32) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most the given size to the pointer, which is
    // to a live struct of that size in which every bit pattern is valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            SIZE,
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        Ok(attributes)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the scheduling class of a thread (0: the calling one).
///
/// # Errors
/// The thread is gone.
pub fn policy(thread: u32) -> io::Result<Policy> {
    let attributes = read(thread)?;
    Ok(match attributes.policy {
        NORMAL => Policy::Normal,
        FIFO => Policy::Fifo(attributes.priority),
        DEADLINE => Policy::Deadline(Deadline {
            runtime: Nanos(attributes.runtime),
            deadline: Nanos(attributes.deadline),
            period: Nanos(attributes.period),
        }),
        other => Policy::Other(other),
    })
}

/// Checks that this process may set a thread to that scheduling class, on a temporary thread.
///
/// # Errors
/// The kernel's error.
pub fn probe(policy: Policy) -> io::Result<()> {
    std::thread::scope(|scope| {
        let probe = std::thread::Builder::new().spawn_scoped(scope, || set_policy(0, policy))?;
        match probe.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Sets a time slice under `SCHED_OTHER` on a temporary thread, and returns the value that reads
/// back: zero if the kernel has no slices (before Linux 6.12), which it does not report in another
/// way.
///
/// # Errors
/// The kernel's error.
pub fn probe_slice(slice: Nanos) -> io::Result<Nanos> {
    std::thread::scope(|scope| {
        let probe = std::thread::Builder::new().spawn_scoped(scope, || {
            // The call sets everything, so the present values are read first.
            let mut attributes = read(0)?;
            attributes.size = SIZE;
            attributes.runtime = slice.as_nanos();
            write(0, &attributes)?;
            Ok(Nanos(read(0)?.runtime))
        })?;
        match probe.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::required::{Part, skipped};

    const TENTH: Deadline = Deadline {
        runtime: Nanos::from_micros(500),
        deadline: Nanos::from_millis(5),
        period: Nanos::from_millis(5),
    };

    #[test]
    fn a_new_thread_has_a_proportional_share() {
        assert_eq!(policy(0).unwrap(), Policy::Normal);
    }

    #[test]
    fn a_scheduling_policy_reads_back() {
        for (part, wanted) in [
            (Part::SchedDeadline, Policy::Deadline(TENTH)),
            (Part::SchedFifo, Policy::Fifo(3)),
        ] {
            if let Err(error) = probe(wanted) {
                skipped(part, error);
                continue;
            }
            let seen = std::thread::spawn(move || {
                set_policy(0, wanted).unwrap();
                let with = policy(0).unwrap();
                set_policy(0, Policy::Normal).unwrap();
                [with, policy(0).unwrap()]
            });
            assert_eq!(seen.join().unwrap(), [wanted, Policy::Normal]);
        }
    }

    #[test]
    fn a_runtime_beyond_the_deadline_is_refused() {
        let impossible = Deadline {
            runtime: Nanos::from_millis(6),
            ..TENTH
        };
        assert!(set_policy(0, Policy::Deadline(impossible)).is_err());
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        assert!(policy(u32::MAX >> 1).is_err());
    }
}
