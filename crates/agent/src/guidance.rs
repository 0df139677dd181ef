//! The class for guests that mostly sleep, by kernel. Before EEVDF (Linux 6.6) they need none. Since then
//! they wait for a tick or longer: a short slice helps from Linux 7 on, or if timers end slices.
//!
//! The figures are those of the kernel bench (`scripts/kernel-bench SUITE classes`): one CPU, 250 ticks a
//! second, a thread that sleeps 1.5 to 4.5 ms and computes 0.1 ms, beside five that never sleep.

use std::fmt;
use tailbound_units::Nanos;

/// The version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    major: u32,
    minor: u32,
}

impl KernelVersion {
    /// Creates the version `major`.`minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads a release, as `uname -r` prints it; `None` if it does not begin with two numbers.
    pub fn of_release(release: &str) -> Option<Self> {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|number| number.parse().ok());
        Some(Self::new(numbers.next()?, numbers.next()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}.{}", self.major, self.minor)
    }
}

/// The event that ends a time slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceEnd {
    /// The next tick.
    Tick,
    /// A timer (`HRTICK`).
    Timer,
}

/// 99th percentile of wake-up latency up to which a class is enough.
const MAX_WAKE_UP: Nanos = Nanos::from_micros(500);

/// The cheapest class that is enough for guests that mostly sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// No class.
    Normal,
    /// Level `high`: a short slice and a large share.
    High,
    /// Class `periodic`: a reservation.
    Periodic,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "guests that mostly sleep need no class",
            Self::High => "level high is enough for guests that mostly sleep",
            Self::Periodic => "guests that mostly sleep need a reservation (periodic)",
        })
    }
}

/// The 99th percentile of wake-up latency by class, on one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guidance {
    /// The first kernel with this scheduler.
    since: KernelVersion,
    /// The measured kernel.
    pub kernel: KernelVersion,
    /// The end of its time slices.
    pub ends: SliceEnd,
    /// Without a class.
    pub default: Nanos,
    /// At level `high`.
    pub high: Nanos,
    /// With a reservation of 1 ms in 4 ms.
    pub periodic: Nanos,
}

const fn row(kernels: [(u32, u32); 2], ends: SliceEnd, micros: [u64; 3]) -> Guidance {
    let [since, kernel] = kernels;
    let [default, high, periodic] = micros;
    Guidance {
        since: KernelVersion::new(since.0, since.1),
        kernel: KernelVersion::new(kernel.0, kernel.1),
        ends,
        default: Nanos::from_micros(default),
        high: Nanos::from_micros(high),
        periodic: Nanos::from_micros(periodic),
    }
}

/// The table, by kernel; values are rounded to microseconds. Linux 6.18 is Debian's 6.18.15, which no
/// suite has any longer.
pub const TABLE: [Guidance; 7] = [
    row([(0, 0), (6, 1)], SliceEnd::Tick, [54, 54, 4]),
    row([(0, 0), (6, 1)], SliceEnd::Timer, [56, 56, 5]),
    row([(6, 6), (6, 12)], SliceEnd::Tick, [4_003, 4_544, 4]),
    row([(6, 6), (6, 12)], SliceEnd::Timer, [1_945, 57, 5]),
    row([(6, 18), (6, 18)], SliceEnd::Tick, [7_680, 7_830, 18]),
    row([(7, 0), (7, 3)], SliceEnd::Tick, [4_719, 57, 5]),
    row([(7, 0), (7, 3)], SliceEnd::Timer, [2_002, 57, 7]),
];

impl Guidance {
    /// Returns the row of the last change of the scheduler up to this kernel.
    pub fn of(kernel: KernelVersion, ends: SliceEnd) -> &'static Self {
        let rows = || TABLE.iter().filter(|row| row.ends == ends);
        let known = rows().rfind(|row| row.since <= kernel);
        // Each end of slices has a row since 0.0.
        known.unwrap_or(&TABLE[0])
    }

    /// Returns the class that it speaks for.
    pub fn advice(&self) -> Advice {
        match () {
            () if self.default <= MAX_WAKE_UP => Advice::Normal,
            () if self.high <= MAX_WAKE_UP => Advice::High,
            () => Advice::Periodic,
        }
    }
}

impl fmt::Display for Guidance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            default,
            high,
            periodic,
            ..
        } = self;
        write!(
            f,
            "beside five threads that compute, 99 of 100 wake-ups take at most {default} by default, {high} \
             at level high and {periodic} with a reservation ({kernel} on the kernel bench)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the kernel bench.
    const RECORD: &str = include_str!("../../../golden/kernel-bench.toml");

    /// Returns a figure of the experiment `classes` on the kernel of a suite, in nanoseconds.
    fn recorded(suite: &str, figure: &str) -> u64 {
        let head = format!("[{suite}.classes]\n");
        let (_, section) = RECORD.split_once(&head).expect("the suite is recorded");
        let section = section.split("\n[").next().unwrap_or_default();
        let line = format!("\"{figure}\" = ");
        let mut lines = section.lines();
        let value = lines.find_map(|it| it.strip_prefix(&line));
        value
            .expect("the figure is recorded")
            .parse()
            .expect("it is a number")
    }

    /// An update of a kernel moves its figures by up to 10 %, as in `scripts/kernel-bench-check`.
    #[test]
    fn the_table_has_the_figures_of_the_kernel_bench() {
        for (suite, kernel) in [
            ("bookworm", (6, 1)),
            ("trixie", (6, 12)),
            ("trixie-backports", (7, 0)),
        ] {
            for (name, ends) in [("ticks", SliceEnd::Tick), ("timers", SliceEnd::Timer)] {
                let row = Guidance::of(KernelVersion::new(kernel.0, kernel.1), ends);
                for (class, value) in [
                    ("default", row.default),
                    ("high", row.high),
                    ("periodic", row.periodic),
                ] {
                    let figure = format!("{name}.{class}.p99");
                    let found = recorded(suite, &figure);
                    let near = found.abs_diff(value.0) <= (found / 10).max(5_000);
                    assert!(near, "{suite} {figure}: {found} ns, {value} in the table");
                }
            }
        }
    }

    #[test]
    fn a_kernel_has_the_figures_of_its_scheduler() {
        let of = |release: &str, ends| {
            let kernel = KernelVersion::of_release(release).expect("a release");
            Guidance::of(kernel, ends).kernel.to_string()
        };
        assert_eq!(of("6.18.44-generic", SliceEnd::Tick), "Linux 6.18");
        assert_eq!(of("6.18.44-generic", SliceEnd::Timer), "Linux 6.12");
        assert_eq!(of("7.0.1", SliceEnd::Timer), "Linux 7.3");
        assert_eq!(of("5.15.0", SliceEnd::Tick), "Linux 6.1");
        // EEVDF is since Linux 6.6.
        assert_eq!(of("6.8.0-31-generic", SliceEnd::Tick), "Linux 6.12");
    }

    #[test]
    fn between_linux_6_6_and_7_the_level_high_is_enough_with_timers_only() {
        let advice =
            |major, minor, ends| Guidance::of(KernelVersion::new(major, minor), ends).advice();
        assert_eq!(advice(6, 1, SliceEnd::Tick), Advice::Normal);
        assert_eq!(advice(6, 12, SliceEnd::Tick), Advice::Periodic);
        assert_eq!(advice(6, 18, SliceEnd::Tick), Advice::Periodic);
        assert_eq!(advice(6, 18, SliceEnd::Timer), Advice::High);
        assert_eq!(advice(7, 3, SliceEnd::Tick), Advice::High);
        assert_eq!(advice(7, 3, SliceEnd::Timer), Advice::High);
    }

    #[test]
    fn a_release_is_read_by_its_numbers() {
        let of = KernelVersion::of_release;
        assert!(of("6.12.0-rc1") >= Some(KernelVersion::new(6, 12)));
        assert!(of("7.0") >= Some(KernelVersion::new(6, 12)));
        assert!(of("6.9.12-generic") < Some(KernelVersion::new(6, 12)));
        assert_eq!(of(""), None);
    }
}
