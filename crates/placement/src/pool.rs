//! The CPU that a host offers for reservations, and their worst-case delay there, as
//! [`tailbound_hypervisor::reservation`] proves it.

use crate::cpu::{CpuReservation, CpuUse, Thousandths};
use crate::host::HostRule;
use crate::request::{RequestError, check};
use serde::{Deserialize, Serialize};
use tailbound_hypervisor::reservation::{Disturbance, Latency, Pool};
use tailbound_units::Nanos;

/// CPU of a host for reservations, as its agent reports it. The host keeps all reservations within
/// these limits, whenever their threads sleep and wake. The disturbances were measured on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// Number of CPUs that the reservations share.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 65_536))]
    pub cpus: u32,
    /// Limit on the vCPUs with a reservation.
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
    /// Longest burst of interrupts on one CPU.
    pub interrupts: Nanos,
    /// Longest burst of time that the hypervisor below the host takes from one CPU.
    pub steal: Nanos,
    /// Long-run share of interrupts and steal together, in thousandths of each CPU.
    #[cfg_attr(feature = "openapi", schema(maximum = 1_000))]
    pub share: u64,
    /// CPU that guests on the host have reserved beyond their promises. It is not available to
    /// others. Only threads with a reservation by the agent count.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unpromised: CpuUse,
}

fn is_nothing(used: &CpuUse) -> bool {
    *used == CpuUse::default()
}

/// Largest number of a host's CPUs.
const MAX_CPUS: u32 = 65_536;

impl HostCpu {
    /// Returns what is wrong with it by itself.
    pub fn check(&self) -> Result<(), RequestError> {
        let most = u64::from(MAX_CPUS) * 1_000;
        check("cpus", self.cpus, 1, MAX_CPUS)?;
        check("largest", self.largest, 0, most)?;
        check("reservable", self.reservable, 0, most)?;
        check("share", self.share, 0, 1_000)?;
        check("unpromised.cpu", self.unpromised.cpu, 0, most)?;
        check(
            "unpromised.threads",
            self.unpromised.threads,
            0,
            u32::MAX.into(),
        )
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

    /// Returns what it keeps of it for what is promised.
    pub fn left(&self) -> CpuUse {
        CpuUse {
            cpu: self.reservable.saturating_sub(self.unpromised.cpu),
            threads: u64::from(self.threads).saturating_sub(self.unpromised.threads),
        }
    }

    /// Checks what machines take in all.
    pub fn check_sum(&self, sum: CpuUse) -> Result<(), HostRule> {
        let most = self.left();
        if sum.cpu > most.cpu {
            return Err(HostRule::CpuSum {
                sum: Thousandths(sum.cpu),
                most: Thousandths(most.cpu),
                unpromised: Thousandths(self.unpromised.cpu),
            });
        }
        if sum.threads > most.threads {
            return Err(HostRule::CpuThreads {
                sum: sum.threads,
                most: most.threads,
                unpromised: self.unpromised.threads,
            });
        }
        Ok(())
    }

    /// Returns the longest duration of `demand` of CPU time for a vCPU with the reservation, under
    /// any other reservations within the limits.
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

/// Bound on the duration of some work of a vCPU with a reservation, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuLatency {
    /// The CPU time itself.
    pub demand: Nanos,
    /// Time without a CPU, after the reservation was used up.
    pub blackout: Nanos,
    /// Additional time because the thread itself overran its runtime before.
    pub overrun: Nanos,
    /// Additional time because interrupts and steal are charged to the thread.
    pub charged: Nanos,
    /// Lateness of its deadlines, because others overran, and interrupts and steal took their CPUs.
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
