//! The CPU that hosts offer for reservations, by their agents' reports, and the reserved part.
//!
//! A later, lower report moves no machine: [`Datacentre::broken_rule`] returns the broken rule.

use super::{Datacentre, PlacementError};
use crate::cpu::CpuUse;
use crate::host::HostRule;
use crate::pool::HostCpu;
use crate::request::Request;
use crate::topology::NodeId;
use std::cmp::Reverse;

/// Limit on the hosts that are checked for missing CPU.
const HOSTS: usize = 20_000;

impl Datacentre {
    /// Sets what a host keeps for reservations of CPU; None where it keeps none.
    pub fn set_host_cpu(&mut self, host: NodeId, cpu: Option<HostCpu>) {
        self.cpus[host.index()] = cpu.map(Box::new);
    }

    /// Returns what a host keeps for reservations of CPU.
    pub fn host_cpu(&self, host: NodeId) -> Option<&HostCpu> {
        self.cpus[host.index()].as_deref()
    }

    /// Returns what is reserved of it.
    pub fn reserved(&self, host: NodeId) -> CpuUse {
        self.reserved[host.index()]
    }

    /// Checks that a host keeps the CPU of `count` more machines of a request.
    pub(super) fn check_cpu(
        &self,
        host: NodeId,
        request: &Request,
        count: u32,
    ) -> Result<(), HostRule> {
        let Some(reservation) = &request.cpu_reservation else {
            return Ok(());
        };
        let cpu = self.host_cpu(host).ok_or(HostRule::NoCpu)?;
        cpu.keeps(reservation)?;
        let more = reservation.of_machine().times(count);
        cpu.check_sum(self.reserved(host).plus(more))
    }

    /// Checks what is reserved on a host in all.
    ///
    /// # Errors
    /// The host does not keep these reservations.
    pub fn check_reserved(&self, host: NodeId) -> Result<(), HostRule> {
        let reserved = self.reserved(host);
        if reserved == CpuUse::default() {
            return Ok(());
        }
        let cpu = self.host_cpu(host).ok_or(HostRule::NoCpu)?;
        cpu.check_sum(reserved)
    }

    /// Returns for how many more machines of a request a host keeps the CPU.
    pub(super) fn vms_with_cpu(&self, host: NodeId, request: &Request) -> u32 {
        let Some(reservation) = &request.cpu_reservation else {
            return u32::MAX;
        };
        let Some(cpu) = self.host_cpu(host) else {
            return 0;
        };
        if cpu.keeps(reservation).is_err() {
            return 0;
        }
        let (each, reserved) = (reservation.of_machine(), self.reserved(host));
        let by = |most: u64, reserved: u64, each: u64| {
            let left = most.saturating_sub(reserved);
            left.checked_div(each).unwrap_or(u64::MAX)
        };
        let left = cpu.left();
        let most = by(left.cpu, reserved.cpu, each.cpu);
        let most = most.min(by(left.threads, reserved.threads, each.threads));
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Returns the error of a request without a placement. If the request would have room without
    /// its reservation of CPU, the error names this reservation and a host.
    pub(super) fn with_cpu_cause(
        &self,
        request: &Request,
        error: PlacementError,
    ) -> PlacementError {
        let hosts = self.topology.hosts();
        if request.cpu_reservation.is_none() || hosts.len() > HOSTS {
            return error;
        }
        let without = Request {
            cpu_reservation: None,
            message: None,
            ..*request
        };
        let apart = request.domains.filter(|domains| domains.height == 0);
        let most = apart.map_or(u32::MAX, |domains| domains.most(request.vms));
        let (mut with_cpu, mut in_all) = (0, 0);
        let mut nearest: Option<(_, NodeId, HostRule)> = None;
        for host in hosts {
            let room = u64::from(self.vms_that_fit(*host, &without).min(most));
            let fit = room.min(self.vms_with_cpu(*host, request).into());
            in_all += room;
            with_cpu += fit;
            if fit == room {
                continue;
            }
            let Err(rule) = self.check_cpu(*host, request, (fit + 1) as u32) else {
                continue;
            };
            let lacks = (lacking(&rule), Reverse(fit));
            if nearest.as_ref().is_none_or(|(least, ..)| lacks < *least) {
                nearest = Some((lacks, *host, rule));
            }
        }
        let wanted = request.vms;
        match nearest {
            Some((_, host, rule)) if with_cpu < wanted.into() && in_all >= wanted.into() => {
                PlacementError::Cpu {
                    wanted,
                    fit: with_cpu,
                    host: self.topology.name(host).into(),
                    rule,
                }
            }
            _ => error,
        }
    }
}

/// Orders what hosts lack, from the least on.
fn lacking(rule: &HostRule) -> (u8, u64) {
    match rule {
        HostRule::CpuSum { sum, most, .. } => (0, sum.0.saturating_sub(most.0)),
        HostRule::CpuThreads { sum, most, .. } => (1, sum.saturating_sub(*most)),
        HostRule::NoCpu => (3, 0),
        _ => (2, 0),
    }
}
