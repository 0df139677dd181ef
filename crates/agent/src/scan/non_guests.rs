//! Processes that are no guests, and when each is looked at again. Pure.
//!
//! A process becomes a guest when its threads get the names of vCPUs, which may take seconds: QEMU
//! allocates its guest's memory first. A negative answer therefore expires. It expires at the next
//! scan if the process has another name or number of threads, and otherwise after an interval that
//! doubles up to [`MAX_INTERVAL`].

use std::collections::HashMap;
use tailbound_sys::thread::Stat;
use tailbound_units::Nanos;

/// The first interval after a change: a thread gets its name just after it is started.
const MIN_INTERVAL: Nanos = Nanos::from_millis(200);
/// The interval of a process that does not change.
const MAX_INTERVAL: Nanos = Nanos::from_secs(60);
/// The number of files that one scan reads of known processes, at most by one process more. The
/// scan after that continues with the next process.
const FILES_PER_SCAN: u32 = 2_000;
/// Number of read files of a process besides those of its threads.
const FILES_PER_PROCESS: u32 = 4;

/// The processes that are no guests, by number.
#[derive(Debug, Default)]
pub(super) struct NonGuests {
    known: HashMap<u32, NonGuest>,
    now: Nanos,
    /// Files that this scan has read of known processes.
    files: u32,
    /// The process with which this scan begins to look at known ones.
    from: u32,
    /// The first process that this scan has no files left for.
    left: Option<u32>,
}

/// Process or thread that is no guest's.
#[derive(Debug)]
struct NonGuest {
    start: u64,
    name: String,
    threads: u32,
    /// The moment of its last change, or when it was seen first.
    changed: Nanos,
    /// The moment of the next look.
    next: Nanos,
    is_running: bool,
}

impl NonGuests {
    /// Begins a scan of all processes in the order of their numbers.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.now = now;
        self.files = 0;
        self.from = self.left.take().unwrap_or(0);
        for known in self.known.values_mut() {
            known.is_running = false;
        }
    }

    /// Returns true if this scan must look at a process: it is new, or its negative answer has
    /// expired.
    pub(super) fn expired(&mut self, pid: u32, stat: &Stat) -> bool {
        let same = |known: &&mut NonGuest| known.start == stat.start;
        let Some(known) = self.known.get_mut(&pid).filter(same) else {
            self.known.remove(&pid);
            return true;
        };
        known.is_running = true;
        if (&known.name, known.threads) != (&stat.name, stat.threads) {
            known.name.clone_from(&stat.name);
            known.threads = stat.threads;
            known.changed = self.now;
            known.next = self.now;
        }
        if self.now < known.next || pid < self.from {
            return false;
        }
        if self.files >= FILES_PER_SCAN {
            self.left.get_or_insert(pid);
            return false;
        }
        let files = stat.threads.saturating_add(FILES_PER_PROCESS);
        self.files = self.files.saturating_add(files);
        true
    }

    /// Records that a look found no guest.
    pub(super) fn add(&mut self, pid: u32, stat: Stat) {
        let now = self.now;
        let Stat {
            start,
            name,
            threads,
            ..
        } = stat;
        let known = self.known.entry(pid).or_insert(NonGuest {
            start,
            name,
            threads,
            changed: now,
            next: now,
            is_running: true,
        });
        let interval = now.since(known.changed).clamp(MIN_INTERVAL, MAX_INTERVAL);
        known.next = now.saturating_add(interval);
    }

    /// Records that a process is a guest.
    pub(super) fn remove(&mut self, pid: u32) {
        self.known.remove(&pid);
    }

    /// Ends a scan: forgets the processes that have exited.
    pub(super) fn end(&mut self) {
        self.known.retain(|_, known| known.is_running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_sys::thread::PolicyNumber;

    fn stat(name: &str, threads: u32) -> Stat {
        Stat {
            name: name.to_owned(),
            state: 'S',
            kernel: false,
            threads,
            start: 100,
            processor: 0,
            policy: PolicyNumber::NORMAL,
        }
    }

    /// The seconds, of the first `until`, at which a scan each second looks at a process that has
    /// `threads` threads then.
    fn looks(until: u64, threads: impl Fn(u64) -> u32) -> Vec<u64> {
        let mut known = NonGuests::default();
        let mut looks = Vec::new();
        for second in 0..until {
            known.begin(Nanos::from_secs(second));
            if known.expired(7, &stat("kvm", threads(second))) {
                looks.push(second);
                known.add(7, stat("kvm", threads(second)));
            }
            known.end();
        }
        looks
    }

    #[test]
    fn an_unchanged_process_is_scanned_less_and_less_often() {
        assert_eq!(
            looks(200, |_| 1),
            [0, 1, 2, 4, 8, 16, 32, 64, 124, 184],
            "at most a minute apart"
        );
    }

    #[test]
    fn a_new_thread_is_scanned_in_its_second_and_the_next() {
        let looks = looks(200, |second| if second < 100 { 1 } else { 2 });
        assert_eq!(looks[8..12], [100, 101, 102, 104]);
    }

    #[test]
    fn a_renamed_process_or_reused_pid_is_scanned_again() {
        let mut known = NonGuests::default();
        let mut scan = |milliseconds, stat: Stat| {
            known.begin(Nanos::from_millis(milliseconds));
            let expired = known.expired(7, &stat);
            if expired {
                known.add(7, stat);
            }
            known.end();
            expired
        };
        assert!(scan(0, stat("sh", 1)));
        assert!(!scan(10, stat("sh", 1)));
        assert!(scan(20, stat("kvm", 1)));
        assert!(!scan(30, stat("kvm", 1)));
        let next = Stat {
            start: 101,
            ..stat("kvm", 1)
        };
        assert!(scan(40, next.clone()));
        assert!(!scan(50, next));
    }

    #[test]
    fn exited_processes_are_forgotten() {
        let mut known = NonGuests::default();
        known.begin(Nanos::ZERO);
        known.add(7, stat("sh", 1));
        known.end();
        known.begin(Nanos::from_secs(1));
        known.end();
        assert!(known.known.is_empty());
    }

    #[test]
    fn changing_processes_stay_in_the_scan_budget_and_none_starves() {
        let mut known = NonGuests::default();
        let mut looks = [0; 100];
        for second in 0..100 {
            known.begin(Nanos::from_secs(second));
            let mut files = 0;
            for pid in 0..100 {
                let threads = 500 + u32::try_from(second % 2).unwrap();
                if known.expired(pid, &stat("busy", threads)) {
                    known.add(pid, stat("busy", threads));
                    looks[pid as usize] += 1;
                    files += threads + FILES_PER_PROCESS;
                }
            }
            known.end();
            assert!(second == 0 || files < FILES_PER_SCAN + 600, "{files}");
        }
        // Four of a hundred in each scan but the first.
        assert!(
            looks.iter().all(|looks| (4..=6).contains(looks)),
            "{looks:?}"
        );
    }
}
