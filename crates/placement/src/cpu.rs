//! CPU that is reserved for machines, what a host says that it keeps of it, and messages whose
//! latency has it in it. What reservations are worth is proved by
//! [`tailbound_hypervisor::reservation`].

use crate::host::HostRule;
use crate::request::{RequestError, check};
use serde::{Deserialize, Serialize};
use tailbound_hypervisor::reservation::{Deadline, Disturbance, Latency, Pool};
use tailbound_units::{Bytes, Nanos};

/// The most vCPUs of one machine.
const MAX_VCPUS: u32 = 4_096;
/// The longest message.
const MAX_MESSAGE: Bytes = Bytes(1_000_000_000_000);
/// The most CPU that a message may need at one end.
const MAX_DEMAND: Nanos = Nanos::from_secs(60);
/// The shortest runtime that Linux takes, and the shortest and the longest period that it takes
/// by default.
const MIN_RUNTIME: Nanos = Nanos(1_024);
const MIN_PERIOD: Nanos = Nanos::from_micros(100);
const MAX_PERIOD: Nanos = Nanos::from_micros(1 << 22);

/// What is reserved for each vCPU of a machine: `runtime` of CPU in each `period`, by `deadline`
/// after it has something to do. CPU time at full speed: what is done in it is less while the core
/// is shared with another hardware thread, or runs slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CpuReservation {
    /// CPU time in each period.
    pub runtime: Nanos,
    /// By when it is given, at most the period.
    pub deadline: Nanos,
    /// The period.
    pub period: Nanos,
    /// How many vCPUs of each machine have it, each its own.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4096, default = 1))]
    pub vcpus: u32,
}

const fn one() -> u32 {
    1
}

impl CpuReservation {
    /// Checks that it makes sense by itself.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        check("runtime", self.runtime, MIN_RUNTIME, MAX_PERIOD)?;
        check("period", self.period, MIN_PERIOD, MAX_PERIOD)?;
        check("deadline", self.deadline, self.runtime, self.period)?;
        check("number of vCPUs", self.vcpus, 1, MAX_VCPUS)
    }

    /// What each machine with it takes of its host.
    pub fn of_machine(&self) -> CpuUse {
        let each = self.as_deadline().density();
        CpuUse {
            cpu: each.saturating_mul(self.vcpus.into()),
            threads: self.vcpus.into(),
        }
    }

    fn as_deadline(self) -> Deadline {
        Deadline {
            runtime: self.runtime,
            deadline: self.deadline,
            period: self.period,
        }
    }
}

/// What machines take of the CPU that a host keeps for reservations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuUse {
    /// The sum of runtime / deadline, in thousandths of a CPU, each rounded up.
    pub cpu: u64,
    /// The number of vCPUs with a reservation.
    pub threads: u64,
}

impl CpuUse {
    /// Returns that of so many.
    #[must_use]
    pub(crate) fn times(self, count: u32) -> Self {
        Self {
            cpu: self.cpu.saturating_mul(count.into()),
            threads: self.threads.saturating_mul(count.into()),
        }
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
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

/// What each machine sends as one, and what it is worth knowing how long that takes.
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

impl Message {
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        check("message", self.size, Bytes(1), MAX_MESSAGE)?;
        check("CPU to send", self.send, Nanos::ZERO, MAX_DEMAND)?;
        check("CPU to receive", self.receive, Nanos::ZERO, MAX_DEMAND)
    }
}

/// The CPU that a host keeps for reservations, as its agent says: any reservations within these
/// limits, whenever their threads sleep and wake. What takes time beside them was measured there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// How many CPUs the reservations have together.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65_536))]
    pub cpus: u32,
    /// How many vCPUs may have a reservation.
    #[cfg_attr(feature = "openapi", schema(maximum = 4_294_967_295_u64))]
    pub threads: u32,
    /// The largest runtime / deadline of one, in thousandths of a CPU.
    #[cfg_attr(feature = "openapi", schema(maximum = 65_536_000))]
    pub largest: u64,
    /// The largest sum of them, in thousandths of a CPU.
    #[cfg_attr(feature = "openapi", schema(maximum = 65_536_000))]
    pub reservable: u64,
    /// The error of enforcement: how long one may run beyond its runtime.
    pub overrun: Nanos,
    /// What interrupts take of a CPU at once.
    pub interrupts: Nanos,
    /// What whoever runs the host as a guest takes of a CPU at once.
    pub steal: Nanos,
    /// What both take in the long run, in thousandths of each CPU.
    #[cfg_attr(feature = "openapi", schema(maximum = 1_000))]
    pub share: u64,
}

/// The most CPUs of a host.
const MAX_CPUS: u32 = 65_536;

impl HostCpu {
    /// Returns what is wrong with it by itself.
    pub fn check(&self) -> Result<(), RequestError> {
        let most = u64::from(MAX_CPUS) * 1_000;
        check("cpus", self.cpus, 1, MAX_CPUS)?;
        check("largest", self.largest, 0, most)?;
        check("reservable", self.reservable, 0, most)?;
        check("share", self.share, 0, 1_000)
    }

    fn pool(&self) -> Pool {
        Pool {
            cpus: self.cpus,
            threads: self.threads,
            largest: self.largest,
            reservable: self.reservable,
            disturbance: Disturbance {
                overrun: self.overrun,
                interrupts: self.interrupts,
                steal: self.steal,
                share: self.share,
            },
        }
    }

    /// Checks the reservation of one machine by itself.
    pub fn keeps(&self, reservation: &CpuReservation) -> Result<(), HostRule> {
        let service = self.pool().service(reservation.as_deadline());
        service.map_err(|why| HostRule::Cpu { why })?;
        self.check_sum(reservation.of_machine())
    }

    /// Checks what machines take in all.
    pub fn check_sum(&self, sum: CpuUse) -> Result<(), HostRule> {
        if sum.cpu > self.reservable {
            return Err(HostRule::CpuSum {
                sum: Thousandths(sum.cpu),
                most: Thousandths(self.reservable),
            });
        }
        if sum.threads > self.threads.into() {
            return Err(HostRule::CpuThreads {
                sum: sum.threads,
                most: self.threads,
            });
        }
        Ok(())
    }

    /// Returns how long `demand` of CPU time takes at most for a vCPU with the reservation,
    /// whatever else is reserved within the limits.
    ///
    /// # Errors
    /// The host does not keep the reservation, or it would never be over.
    pub fn latency(
        &self,
        reservation: &CpuReservation,
        demand: Nanos,
    ) -> Result<CpuLatency, HostRule> {
        let service = self.pool().service(reservation.as_deadline());
        let latency = service
            .map_err(|why| HostRule::Cpu { why })?
            .latency(demand);
        if latency.total() == Nanos::MAX {
            return Err(HostRule::CpuTaken);
        }
        let Latency {
            demand,
            blackout,
            overrun,
            charged,
            lateness,
        } = latency;
        Ok(CpuLatency {
            demand,
            blackout,
            overrun,
            charged,
            lateness,
        })
    }
}

/// How long a vCPU with a reservation takes at most for what it has to do, part by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuLatency {
    /// The CPU time itself.
    pub demand: Nanos,
    /// Without a CPU: its reservation was used up, and is again.
    pub blackout: Nanos,
    /// More of that since it overran its runtime itself.
    pub overrun: Nanos,
    /// More of that since interrupts and steal count as run by it.
    pub charged: Nanos,
    /// By how much its deadlines are missed: others overran, and interrupts and steal took their
    /// CPUs.
    pub lateness: Nanos,
}

impl CpuLatency {
    /// Returns the sum of all parts.
    pub fn total(&self) -> Nanos {
        let parts = [
            self.demand,
            self.blackout,
            self.overrun,
            self.charged,
            self.lateness,
        ];
        parts.into_iter().fold(Nanos::ZERO, Nanos::saturating_add)
    }
}

/// Thousandths of a CPU, written as a number of CPUs: `0.250`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thousandths(pub u64);

impl std::fmt::Display for Thousandths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}
