//! The clock of a NIC, for launch times.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use tailbound_units::Nanos;

/// Interval of the comparisons with our clock: two good clocks drift apart by less than a
/// microsecond in that time.
const EVERY: Nanos = Nanos::from_millis(10);

/// Readings for one comparison: the one that took the shortest counts.
const READINGS: usize = 5;

/// A clock of `/dev/ptpN`, and its difference from ours.
#[derive(Debug)]
pub struct NicClock {
    file: File,
    /// NIC time minus ours, in nanoseconds.
    ahead: i128,
    compare_at: Nanos,
}

impl NicClock {
    pub(super) fn open(index: u32) -> io::Result<Self> {
        Ok(Self {
            file: File::open(format!("/dev/ptp{index}"))?,
            ahead: 0,
            compare_at: Nanos::ZERO,
        })
    }

    /// Returns the NIC's time at `at` of the caller's clock, a monotonic one that `now` reads.
    /// `None` if the NIC's clock cannot be read.
    pub fn at(&mut self, at: Nanos, mut now: impl FnMut() -> Nanos) -> Option<u64> {
        let before = now();
        if before >= self.compare_at {
            let readings = (0..READINGS).filter_map(|_| {
                let (before, nic, after) = (now(), self.read()?, now());
                let middle = i128::midpoint(before.0.into(), after.0.into());
                Some((after.since(before), i128::from(nic) - middle))
            });
            (_, self.ahead) = readings.min()?;
            self.compare_at = before.saturating_add(EVERY);
        }
        u64::try_from(i128::from(at.0) + self.ahead).ok()
    }

    fn read(&self) -> Option<u64> {
        // FD_TO_CLOCKID of clock_getres(2): CLOCKFD is 3.
        let id = (!self.file.as_raw_fd() << 3) | 3;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes one `timespec`.
        if unsafe { libc::clock_gettime(id, &raw mut time) } < 0 {
            return None;
        }
        let seconds = u64::try_from(time.tv_sec).ok()?;
        seconds
            .checked_mul(1_000_000_000)?
            .checked_add(u64::try_from(time.tv_nsec).ok()?)
    }
}
