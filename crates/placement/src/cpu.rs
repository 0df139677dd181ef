//! CPU reservations of machines, and messages whose latency includes them.

use serde::{Deserialize, Serialize};
use tailbound_hypervisor::reservation::Deadline;
use tailbound_units::{Bytes, Nanos};

/// Reservation for each vCPU of a machine: `runtime` of CPU in each `period`, by `deadline` after
/// it has work. The CPU time is at full speed: a vCPU completes less work in it while another
/// hardware thread shares the core, or while the core runs slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CpuReservation {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// Time limit for this CPU time, at most the period.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
    /// Number of vCPUs of each machine that have the reservation, each its own.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4096, default = 1))]
    pub vcpus: u32,
}

const fn one() -> u32 {
    1
}

impl CpuReservation {
    /// Returns the CPU that each machine with the reservation takes of its host.
    pub fn of_machine(&self) -> CpuUse {
        let each = self.as_deadline().density();
        CpuUse {
            cpu: each.saturating_mul(self.vcpus.into()),
            threads: self.vcpus.into(),
        }
    }

    pub(crate) fn as_deadline(self) -> Deadline {
        Deadline {
            runtime: self.runtime,
            deadline: self.deadline,
            period: self.period,
        }
    }
}

/// Part of a host's CPU for reservations that machines use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuUse {
    /// The sum of runtime / deadline, in thousandths of a CPU, each rounded up.
    #[cfg_attr(feature = "openapi", schema(maximum = 65_536_000))]
    pub cpu: u64,
    /// The number of vCPUs with a reservation.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub threads: u64,
}

impl CpuUse {
    /// Returns the sum for `count` machines.
    #[must_use]
    pub(crate) fn times(self, count: u32) -> Self {
        Self {
            cpu: self.cpu.saturating_mul(count.into()),
            threads: self.threads.saturating_mul(count.into()),
        }
    }

    /// Returns that and another one's.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            threads: self.threads.saturating_add(other.threads),
        }
    }

    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            threads: self.threads.saturating_sub(other.threads),
        }
    }
}

/// Message of each machine, and its CPU demand, for a bound on the latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// M, in bytes on the wire.
    pub size: Bytes,
    /// The CPU time that its sender needs for it before it is sent.
    #[serde(default)]
    pub send: Nanos,
    /// The CPU time that its receiver needs for it once it is there.
    #[serde(default)]
    pub receive: Nanos,
}

/// Thousandths of a CPU, written as a number of CPUs: `0.250`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thousandths(pub u64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
