//! Tests that may not skip. A test that needs a missing part of the system calls [`skipped`] and
//! returns. If the environment requires that part, the test fails instead.
//!
//! `TAILBOUND_REQUIRE` is a list of names with commas between them. `all` stands for every part, a
//! name for that part, and `-NAME` removes a part from the names before it: `all,-af-xdp`. Unset or
//! empty, nothing is required. `TAILBOUND_SKIPS` names a file that gets a line for each skip, so
//! that the skips of all processes of a test run can be counted together.

use std::fmt;
use std::io::Write as _;

/// The variable that lists the required parts.
pub const REQUIRE: &str = "TAILBOUND_REQUIRE";

/// The variable with the path of the file in which skips are counted.
pub const SKIPS: &str = "TAILBOUND_SKIPS";

macro_rules! parts {
    ($($part:ident, $name:literal, $what:literal;)*) => {
        /// Something that a test needs and a machine may lack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Part {
            $(#[doc = $what] $part,)*
        }

        /// Every part, in the order of the enum.
        pub const PARTS: &[Part] = &[$(Part::$part),*];

        impl Part {
            /// Returns its name in [`REQUIRE`]: where `tailbound doctor` has a row
            /// for it, the name of that row.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$part => $name,)*
                }
            }
        }
    };
}

parts! {
    NetworkNamespaces, "netns", "A network namespace of its own, as root or by a user namespace.";
    UserNamespaces, "user-namespaces", "A user namespace, and mounts in it.";
    OrdinaryUser, "ordinary-user", "A process of the user 65534 that may run the test's own file.";
    Ip, "ip", "The command `ip`.";
    Tap, "tap", "A TAP device.";
    AfXdp, "af-xdp", "`AF_XDP` sockets and programs.";
    NetdevFamily, "netdev-family", "The kernel's report of a NIC's `AF_XDP` features.";
    SchedDeadline, "sched-deadline", "`SCHED_DEADLINE`, with bandwidth left.";
    SchedFifo, "sched-fifo", "`SCHED_FIFO`.";
    LegacySets, "legacy-cpusets", "Cpusets of control groups of version 1, on two CPUs.";
    RtGroups, "rt-groups", "Control groups of version 1 with a budget of real time.";
    CustomSlice, "custom-slice", "Time slices of a thread's own.";
    BpfWaits, "bpf-waits", "BPF programs at the scheduler's tracepoints.";
    BpfPackets, "bpf-packets", "BPF programs at the tracepoints of packets.";
    BpfEdge, "bpf-edge", "BPF programs on interfaces, and a BPF file system.";
    CniPlugins, "cni-plugins", "The plugins of the CNI project, in `/usr/lib/cni` or `/opt/cni/bin`.";
    CpuWeight, "cpu-weight", "A control group with a weight.";
    KernelConfig, "kernel-config", "The configuration that the kernel was built with.";
    Perf, "perf", "The command `perf`, and the scheduler's events, as root.";
    Ping, "ping", "The command `ping`.";
    Iperf3, "iperf3", "The command `iperf3`.";
    Memcached, "memcached", "The command `memcached`.";
    Qemu, "qemu", "QEMU's system emulator.";
    Libvirt, "libvirt", "libvirt, as root.";
    Dpdk, "dpdk", "DPDK's `dpdk-testpmd`.";
    GuestKernel, "guest-kernel", "QEMU, and a kernel for its guest.";
    Etcd, "etcd", "The commands `etcd` and `etcdctl`.";
    Go, "go", "The command `go`.";
    Chromium, "chromium", "Chromium or a kin of it.";
    LinuxCodel, "linux-codel", "A C compiler, and Linux's sources of `CoDel` (`scripts/linux-codel`).";
    SystemdAnalyze, "systemd-analyze", "The command `systemd-analyze`, of systemd 250 or later.";
    Openssl, "openssl", "The command `openssl`.";
    Schemathesis, "schemathesis", "The fuzzer of HTTP APIs, or Python and its packages to install it from.";
    ClientGenerator, "client-generator", "The generator of Python clients, or Python and its packages to install it from.";
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The required parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct RequiredParts(Vec<Part>);

impl RequiredParts {
    /// Reads a list; an error names the unknown part, and the known ones.
    fn parse(list: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for word in list
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            if word == "all" {
                parts = PARTS.to_vec();
                continue;
            }
            let name = word.strip_prefix('-').unwrap_or(word);
            let named = PARTS.iter().find(|part| part.name() == name);
            let part = *named.ok_or_else(|| {
                let known: Vec<_> = PARTS.iter().map(|part| part.name()).collect();
                format!(
                    "{REQUIRE}: there is no \"{name}\"; there are all, {}",
                    known.join(", ")
                )
            })?;
            parts.retain(|other| *other != part);
            if !word.starts_with('-') {
                parts.push(part);
            }
        }
        Ok(Self(parts))
    }

    /// Reads the list in the environment.
    fn of_environment() -> Result<Self, String> {
        match std::env::var(REQUIRE) {
            Ok(list) => Self::parse(&list),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(error) => Err(format!("{REQUIRE}: {error}")),
        }
    }

    fn judge(&self, part: Part, why: &dyn fmt::Display) -> Result<String, String> {
        if self.0.contains(&part) {
            return Err(format!("{part} is missing and {REQUIRE} demands it: {why}"));
        }
        Ok(format!("skipped: {part}: {why}"))
    }
}

/// Reports that a test, or a part of it, does not run since this computer lacks `part`, with the
/// reason. It writes to the real standard error, which the test harness does not capture.
///
/// # Panics
/// [`REQUIRE`] requires the part, or contains an unknown name.
pub fn skipped(part: Part, why: impl fmt::Display) {
    match RequiredParts::of_environment().and_then(|required| required.judge(part, &why)) {
        Ok(line) => {
            let _ = writeln!(std::io::stderr(), "{line}");
            count(&line);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Adds a line to the file of [`SKIPS`]. A process without the permission to write there, for
/// example an ordinary user's, is not counted.
fn count(line: &str) {
    let Some(path) = std::env::var_os(SKIPS) else {
        return;
    };
    let file = std::fs::OpenOptions::new().append(true).open(path);
    // In one write, so that lines of several processes do not mix.
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::super::TABLE;
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let required = RequiredParts::parse(list).unwrap();
        required.0.into_iter().map(Part::name).collect()
    }

    #[test]
    fn the_environment_requires_known_parts_only() {
        RequiredParts::of_environment().unwrap();
    }

    #[test]
    fn a_list_is_read_from_left_to_right() {
        assert_eq!(names(""), Vec::<&str>::new());
        assert_eq!(names("tap"), ["tap"]);
        assert_eq!(names("tap, etcd,tap"), ["etcd", "tap"]);
        assert_eq!(names("tap,-tap"), Vec::<&str>::new());
        assert_eq!(names("-tap,tap"), ["tap"]);
        assert_eq!(names("all").len(), PARTS.len());
        assert_eq!(names("tap,all").len(), PARTS.len());
        let most = names("all,-tap,-etcd");
        assert_eq!(most.len(), PARTS.len() - 2);
        assert!(!most.contains(&"tap") && !most.contains(&"etcd"));
    }

    #[test]
    fn a_name_that_is_no_part_is_refused_also_where_it_is_taken_out() {
        for list in ["everything", "all,-everything", "tap etcd", "TAP"] {
            let error = RequiredParts::parse(list).unwrap_err();
            assert!(error.contains("there is no \""), "{error}");
            assert!(error.contains("netns, user-namespaces"), "{error}");
        }
    }

    #[test]
    fn a_missing_part_fails_if_required_and_is_skipped_otherwise() {
        let required = RequiredParts::parse("all,-tap").unwrap();
        assert_eq!(
            required.judge(Part::Tap, &"no /dev/net/tun"),
            Ok("skipped: tap: no /dev/net/tun".into())
        );
        let error = required.judge(Part::Etcd, &"not installed").unwrap_err();
        assert_eq!(
            error,
            "etcd is missing and TAILBOUND_REQUIRE demands it: not installed"
        );
        assert!(RequiredParts::default().judge(Part::Etcd, &"-").is_ok());
    }

    #[test]
    fn part_names_are_unique_and_match_the_doctor() {
        let rows: Vec<_> = TABLE.iter().map(|probe| probe.name).collect();
        let own = [
            "ordinary-user",
            "cni-plugins",
            "netdev-family",
            "sched-fifo",
            "legacy-cpusets",
            "rt-groups",
            "kernel-config",
            "guest-kernel",
            "etcd",
            "go",
            "chromium",
            "linux-codel",
            "schemathesis",
            "client-generator",
            "systemd-analyze",
            "libvirt",
            "dpdk",
            "perf",
            "openssl",
        ];
        for (index, part) in PARTS.iter().enumerate() {
            assert!(
                PARTS[..index]
                    .iter()
                    .all(|other| other.name() != part.name())
            );
            assert!(
                rows.contains(&part.name()) != own.contains(&part.name()),
                "{part}"
            );
        }
    }
}
