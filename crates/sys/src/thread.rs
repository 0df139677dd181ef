//! Scheduling of one thread: all settings of `sched_setattr(2)`, so that earlier ones can be
//! restored, and the thread's files in `/proc`.
//!
//! [`crate::sched`] has the policies that the lab sets for its own children; this module is for
//! others' threads, which have earlier settings.

use crate::procfs;
use crate::root::Root;
use crate::sched::{self, Attributes, SIZE};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open, openat};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::io;
use tailbound_units::Nanos;

/// The identity of one thread: numbers are used again, but not with the same start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// The process of the thread.
    pub pid: u32,
    /// The number of the thread.
    pub tid: u32,
    /// The start time, in ticks since boot.
    pub start: u64,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tid)
    }
}

/// Number of a scheduling policy, as in `sched(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyNumber(pub u32);

impl PolicyNumber {
    /// `SCHED_OTHER`.
    pub const NORMAL: Self = Self(0);
    /// `SCHED_FIFO`.
    pub const FIFO: Self = Self(1);
    /// `SCHED_RR`.
    pub const RR: Self = Self(2);
    /// `SCHED_BATCH`.
    pub const BATCH: Self = Self(3);
    /// `SCHED_IDLE`.
    pub const IDLE: Self = Self(5);
    /// `SCHED_DEADLINE`.
    pub const DEADLINE: Self = Self(6);
    /// `SCHED_EXT`.
    pub const EXT: Self = Self(7);
}

impl fmt::Display for PolicyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match *self {
            Self::NORMAL => "SCHED_OTHER",
            Self::FIFO => "SCHED_FIFO",
            Self::RR => "SCHED_RR",
            Self::BATCH => "SCHED_BATCH",
            Self::IDLE => "SCHED_IDLE",
            Self::DEADLINE => "SCHED_DEADLINE",
            Self::EXT => "SCHED_EXT",
            Self(number) => return write!(f, "policy {number}"),
        })
    }
}

/// All settings of a thread in `sched_setattr(2)`, except for its utilization clamps, which stay
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheduling {
    /// The policy.
    pub policy: PolicyNumber,
    /// Flags of the call; [`Self::RESET_ON_FORK`]: children start with a plain share.
    pub flags: u64,
    /// -20 to 19, if the policy is a proportional share.
    pub nice: i32,
    /// 1 to 99, if the policy is `SCHED_FIFO` or `SCHED_RR`.
    pub priority: u32,
    /// CPU time in each period under `SCHED_DEADLINE`; under a proportional share the time slice,
    /// if the kernel has slices (Linux 6.12).
    pub runtime: Nanos,
    /// The deadline in the period, under `SCHED_DEADLINE`.
    pub deadline: Nanos,
    /// The period, under `SCHED_DEADLINE`.
    pub period: Nanos,
}

impl Scheduling {
    /// A plain share, with which every thread begins.
    pub const PLAIN: Self = Self {
        policy: PolicyNumber::NORMAL,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: Nanos::ZERO,
        deadline: Nanos::ZERO,
        period: Nanos::ZERO,
    };
    /// Flag: children start with a plain share. Without it a thread with a
    /// deadline cannot start another one.
    pub const RESET_ON_FORK: u64 = 1;
    /// Flag: a thread with a deadline may also use the unused time of other reservations (Linux
    /// 4.13).
    pub const RECLAIM: u64 = 2;

    /// Returns true if the thread has a reservation.
    pub fn is_deadline(&self) -> bool {
        self.policy == PolicyNumber::DEADLINE
    }

    /// Returns true if the thread has a proportional share.
    pub fn is_share(&self) -> bool {
        matches!(self.policy, PolicyNumber::NORMAL | PolicyNumber::BATCH)
    }
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        match self.policy {
            PolicyNumber::DEADLINE => {
                write!(f, " {}/{}/{}", self.runtime, self.deadline, self.period)?;
                if self.flags & Self::RECLAIM != 0 {
                    write!(f, " reclaim")?;
                }
                Ok(())
            }
            PolicyNumber::FIFO | PolicyNumber::RR => write!(f, " {}", self.priority),
            PolicyNumber::NORMAL | PolicyNumber::BATCH => {
                if self.nice != 0 {
                    write!(f, " nice {}", self.nice)?;
                }
                if self.runtime != Nanos::ZERO {
                    write!(f, " slice {}", self.runtime)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the scheduling of a thread (0: the calling one).
///
/// # Errors
/// The thread is gone (ESRCH).
pub fn scheduling(tid: u32) -> io::Result<Scheduling> {
    let seen = sched::read(tid)?;
    Ok(Scheduling {
        policy: PolicyNumber(seen.policy),
        flags: seen.flags,
        nice: seen.nice,
        priority: seen.priority,
        runtime: Nanos(seen.runtime),
        deadline: Nanos(seen.deadline),
        period: Nanos(seen.period),
    })
}

/// Sets the scheduling of a thread (0: the calling one).
///
/// A thread that leaves `SCHED_DEADLINE` while it sleeps keeps its bandwidth
/// booked for ever on some kernels (seen on 6.18), so that later requests meet
/// EBUSY. Call [`release_bandwidth`] before.
///
/// # Errors
/// EPERM, EBUSY, EINVAL as in `sched_setattr(2)`; ESRCH if the thread is gone.
pub fn set_scheduling(tid: u32, wanted: &Scheduling) -> io::Result<()> {
    sched::write(
        tid,
        &Attributes {
            size: SIZE,
            policy: wanted.policy.0,
            flags: wanted.flags,
            nice: wanted.nice,
            priority: wanted.priority,
            runtime: wanted.runtime.as_nanos(),
            deadline: wanted.deadline.as_nanos(),
            period: wanted.period.as_nanos(),
        },
    )
}

/// The reservation that [`release_bandwidth`] sets: so small that the kernel, which books in units
/// of 2^-20, books nothing for it.
pub const NOTHING: Scheduling = Scheduling {
    policy: PolicyNumber::DEADLINE,
    runtime: Nanos(1024),
    deadline: Nanos::from_millis(4000),
    period: Nanos::from_millis(4000),
    ..Scheduling::PLAIN
};

/// Releases the bandwidth of a thread with a deadline, as the step before the thread leaves
/// `SCHED_DEADLINE`. It must leave directly afterwards: with the reservation that this sets, it
/// would run for a microsecond in four seconds. It keeps the rest of its present period's runtime.
///
/// A thread that is running, or would be if it had not used its reservation up, stays unchanged:
/// the kernel releases its bandwidth by itself once the excess over its runtime is worked off, at
/// the reserved rate. At the rate that this call sets, that would take minutes. Meanwhile the
/// thread must not get a deadline again: the kernel would wait for a timer that has passed, and
/// never run it, not even to be killed.
///
/// # Errors
/// As [`set_scheduling`]. If the administrator has set `kernel.sched_deadline_period_max_us` below
/// four seconds: EINVAL, and nothing has changed.
pub fn release_bandwidth(tid: u32, flags: u64) -> io::Result<()> {
    let runs = match tid {
        0 => true,
        tid => procfs::parse_state(&std::fs::read_to_string(format!("/proc/{tid}/stat"))?)
            .is_some_and(|state| state == 'R'),
    };
    if runs {
        return Ok(());
    }
    set_scheduling(tid, &Scheduling { flags, ..NOTHING })
}

/// The content of `/proc/PID/task/TID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name, at most 15 bytes.
    pub name: String,
    /// 'R' is running or runnable, 'S' sleeps, 'Z' has ended.
    pub state: char,
    /// True for a thread of the kernel itself (`PF_KTHREAD`); no process can imitate that.
    pub kernel: bool,
    /// The number of threads of the process.
    pub threads: u32,
    /// The start time, in ticks since boot.
    pub start: u64,
    /// The CPU on which it runs, or ran last.
    pub processor: u32,
    /// The policy.
    pub policy: PolicyNumber,
}

/// Flag of a thread of the kernel, in the ninth field of `stat`.
const PF_KTHREAD: u32 = 0x0020_0000;

/// Reads the text of a `stat` file; `None` for another format.
pub fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything, parentheses included.
    let (head, rest) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // From the third field of proc_pid_stat(5) on.
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat {
        name: name.to_owned(),
        state: fields.next()?.chars().next()?,
        kernel: fields.nth(5)?.parse::<u32>().ok()? & PF_KTHREAD != 0,
        threads: fields.nth(10)?.parse().ok()?,
        start: fields.nth(1)?.parse().ok()?,
        processor: fields.nth(16)?.parse().ok()?,
        policy: PolicyNumber(fields.nth(1)?.parse().ok()?),
    })
}

/// The content of `/proc/PID/task/TID/schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// The time that it ran.
    pub run: Nanos,
    /// The time that it was runnable and waited for a CPU.
    pub wait: Nanos,
    /// The number of times that it got a CPU.
    pub count: u64,
}

/// Reads the text of a `schedstat` file; `None` for another format.
pub fn parse_schedstat(text: &str) -> Option<Schedstat> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || fields.next()?.ok();
    Some(Schedstat {
        run: Nanos(next()?),
        wait: Nanos(next()?),
        count: next()?,
    })
}

/// Credentials of a process, from `/proc/PID/status`. That file is also true for processes that
/// hide themselves: all of `/proc/PID` belongs to root for a process that made itself undumpable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The user of its real, effective, saved and file-system ids; `None` if they differ, as while
    /// a set-user-id program runs.
    pub uid: Option<u32>,
    /// True if it is in a PID namespace below that of `/proc`, as in a container.
    pub nested: bool,
}

/// Reads the text of a `status` file; `None` for another format.
pub fn parse_credentials(text: &str) -> Option<Credentials> {
    let line = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        found.map(|values| values.split_ascii_whitespace())
    };
    let uids: Vec<u32> = line("Uid:")?.map_while(|id| id.parse().ok()).collect();
    let (first, rest) = uids.split_first().filter(|(_, rest)| rest.len() == 3)?;
    Some(Credentials {
        uid: rest.iter().all(|id| id == first).then_some(*first),
        // Kernels without namespaces do not list them (`CONFIG_PID_NS`).
        nested: line("NSpid:").is_some_and(|ids| ids.count() > 1),
    })
}

/// Returns the credentials of a process of this computer; `None` if it has exited.
pub fn credentials(pid: u32) -> Option<Credentials> {
    parse_credentials(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// Returns the arguments in the bytes of `/proc/PID/cmdline`.
pub fn parse_cmdline(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// The threads of one process, read without a path lookup in `/proc` each time.
#[derive(Debug)]
pub struct Tasks {
    directory: OwnedFd,
}

impl Tasks {
    /// Opens `/proc/PID/task`.
    ///
    /// # Errors
    /// The process is gone, or not accessible.
    pub fn open(root: &Root, pid: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = root.path(format!("/proc/{pid}/task"));
        let directory = open(directory, flags, Mode::empty())?;
        Ok(Self { directory })
    }

    /// Returns the numbers of the threads.
    ///
    /// # Errors
    /// The process is gone.
    pub fn list(&self) -> io::Result<Vec<u32>> {
        let mut threads = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            threads.extend(
                entry?
                    .file_name()
                    .to_str()
                    .ok()
                    .and_then(|n| n.parse::<u32>().ok()),
            );
        }
        Ok(threads)
    }

    /// Returns the text of one file of one thread; `None` if the thread is gone.
    ///
    /// # Errors
    /// The system's error.
    pub fn text<'b>(
        &self,
        tid: u32,
        file: &str,
        buffer: &'b mut [u8; 1024],
    ) -> io::Result<Option<Cow<'b, str>>> {
        use rustix::io::Errno;
        let path = format!("{tid}/{file}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let read = openat(self.directory.as_fd(), path, flags, Mode::empty())
            .and_then(|file| rustix::io::read(file, &mut buffer[..]));
        match read {
            Ok(length) => Ok(Some(String::from_utf8_lossy(&buffer[..length]))),
            Err(Errno::NOENT | Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a thread's `stat`; `None` if the thread is gone.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, tid: u32) -> io::Result<Option<Stat>> {
        let mut buffer = [0; 1024];
        Ok(self
            .text(tid, "stat", &mut buffer)?
            .and_then(|text| parse_stat(&text)))
    }

    /// Returns a thread's `schedstat`; `None` if the thread is gone.
    ///
    /// # Errors
    /// The system's error.
    pub fn schedstat(&self, tid: u32) -> io::Result<Option<Schedstat>> {
        let mut buffer = [0; 1024];
        Ok(self
            .text(tid, "schedstat", &mut buffer)?
            .and_then(|text| parse_schedstat(&text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_calling_thread_is_listed_with_its_start() {
        let pid = std::process::id();
        let tasks = Tasks::open(&Root::default(), pid).unwrap();
        assert!(tasks.list().unwrap().contains(&pid));
        let stat = tasks.stat(pid).unwrap().unwrap();
        assert_eq!(Some(stat.start), crate::procfs::start_time(pid));
        assert_eq!(stat.policy, PolicyNumber::NORMAL);
        assert!(tasks.schedstat(pid).unwrap().is_some());
    }

    #[test]
    fn a_thread_that_is_not_there_is_none() {
        let tasks = Tasks::open(&Root::default(), std::process::id()).unwrap();
        assert_eq!(tasks.stat(u32::MAX >> 1).unwrap(), None);
    }

    #[test]
    fn a_nice_value_and_its_flags_read_back() {
        std::thread::spawn(|| {
            let wanted = Scheduling {
                nice: 5,
                flags: Scheduling::RESET_ON_FORK,
                ..Scheduling::PLAIN
            };
            set_scheduling(0, &wanted).unwrap();
            let seen = scheduling(0).unwrap();
            assert_eq!((seen.nice, seen.flags), (wanted.nice, wanted.flags));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn arguments_keep_their_spaces_and_empty_ones() {
        assert_eq!(parse_cmdline(b"a\0b c\0\0d\0"), ["a", "b c", "", "d"]);
        assert_eq!(parse_cmdline(b""), Vec::<String>::new());
        assert_eq!(
            parse_cmdline(b"name set by the process"),
            ["name set by the process"]
        );
    }

    #[test]
    fn a_process_is_a_user_only_where_all_its_ids_say_so() {
        let status = |ids: &str, spaces: &str| format!("Name:\tx\nUid:\t{ids}\nNSpid:\t{spaces}\n");
        for (ids, spaces, uid, nested) in [
            ("1000\t1000\t1000\t1000", "7", Some(1000), false),
            ("0\t0\t0\t0", "7\t1", Some(0), true),
            // Whoever runs a set-user-id program is not its owner.
            ("1000\t0\t0\t0", "7", None, false),
            ("0\t0\t1000\t0", "7", None, false),
        ] {
            let seen = parse_credentials(&status(ids, spaces));
            assert_eq!(seen, Some(Credentials { uid, nested }), "{ids}");
        }
        assert_eq!(parse_credentials("Uid:\t0\t0\n"), None);
        assert_eq!(parse_credentials(""), None);
        let own = credentials(std::process::id()).unwrap();
        assert_eq!(own.uid, Some(rustix::process::geteuid().as_raw()));
    }

    fn stat_text(name: &str, numbers: &[u32]) -> String {
        let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
        format!("7 ({name}) S {}\n", numbers.join(" "))
    }

    proptest! {
        #[test]
        fn a_name_of_any_kind_does_not_shift_the_fields(name in "[ -~()\n]{0,15}", numbers in prop::collection::vec(any::<u32>(), 49)) {
            let stat = parse_stat(&stat_text(&name, &numbers)).unwrap();
            // Fields are counted from 1; the numbers begin with the fourth.
            let field = |n: usize| numbers[n - 4];
            prop_assert_eq!(stat, Stat {
                name,
                state: 'S',
                kernel: field(9) & PF_KTHREAD != 0,
                threads: field(20),
                start: field(22).into(),
                processor: field(39),
                policy: PolicyNumber(field(41)),
            });
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "[ -~\n]{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (parse_stat(&text), parse_schedstat(&text), parse_credentials(&text));
            let _ = parse_cmdline(&bytes);
        }

        #[test]
        fn a_schedstat_is_three_numbers(run: u64, wait: u64, count: u64) {
            let seen = parse_schedstat(&format!("{run} {wait} {count}\n")).unwrap();
            prop_assert_eq!(seen, Schedstat { run: Nanos(run), wait: Nanos(wait), count });
        }
    }
}
