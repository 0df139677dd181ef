//! Caps: a domain's budget, of which its vCPUs take quotas.

use super::{Credit2, Place};
use crate::{DomainId, Host, PcpuSet, VcpuId};
use tailbound_units::Nanos;

/// Interval at which a capped domain receives its budget (`CSCHED2_BDGT_REPL_PERIOD`).
pub(super) const PERIOD: Nanos = Nanos::from_millis(10);
/// Smallest part of the budget that a vCPU takes, in nanoseconds (`CSCHED2_MIN_TIMER`).
const MIN_QUOTA: i64 = 500_000;

/// Remaining budget of a domain in this period, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Domain {
    /// Budget of each period; none: no cap.
    total: Option<i64>,
    left: i64,
    /// Part of the budget that a vCPU takes.
    quota: i64,
    parked: Vec<VcpuId>,
}

impl Domain {
    /// Returns the budget of each period, if the domain has a cap.
    pub(super) fn cap(&self) -> Option<i64> {
        self.total
    }
}

/// The budgets of `host`'s domains.
pub(super) fn domains(host: &Host) -> Vec<Domain> {
    let vcpus = |id: DomainId| host.vcpus().iter().filter(move |vcpu| vcpu.domain == id);
    let domain = |(id, domain): (u32, &crate::Domain)| {
        let count = i64::try_from(vcpus(DomainId(id)).count()).unwrap_or(i64::MAX);
        let total = i64::from(domain.cap) * (PERIOD.0 / 100).cast_signed();
        Domain {
            total: (total > 0).then_some(total),
            left: total,
            quota: (total / count.max(1)).max(MIN_QUOTA),
            parked: Vec::new(),
        }
    };
    (0..).zip(host.domains()).map(domain).collect()
}

impl Credit2 {
    /// Sees that `vcpu` has budget, and parks it if its domain has none left.
    pub(super) fn grab_budget(&mut self, vcpu: VcpuId) -> bool {
        let row = &mut self.vcpus[vcpu.index()];
        let Some(budget) = row.budget.as_mut().filter(|budget| **budget <= 0) else {
            return true;
        };
        let domain = &mut self.domains[row.domain.index()];
        // What it ran beyond its budget is the domain's debt.
        domain.left += *budget;
        *budget = domain.left.clamp(0, domain.quota);
        domain.left -= *budget;
        if *budget > 0 {
            return true;
        }
        domain.parked.push(vcpu);
        self.dequeue(vcpu, Place::Parked);
        false
    }

    /// Returns the budget that `vcpu`, which stopped, did not use to its domain; others
    /// may go on with that.
    pub(super) fn return_budget(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &mut self.vcpus[vcpu.index()];
        let Some(budget) = row.budget.as_mut().filter(|budget| **budget > 0) else {
            return;
        };
        let domain = row.domain;
        self.domains[domain.index()].left += std::mem::take(budget);
        self.unpark(now, domain, raise);
    }

    /// Begins a period of the domain in `slot`.
    pub(super) fn replenish(&mut self, now: Nanos, slot: usize, raise: &mut PcpuSet) {
        let domain = &mut self.domains[slot];
        let total = domain.total.unwrap_or(0);
        domain.left = (domain.left + total).min(total);
        self.unpark(now, DomainId(slot as u32), raise);
    }

    fn unpark(&mut self, now: Nanos, domain: DomainId, raise: &mut PcpuSet) {
        let domain = domain.index();
        if self.domains[domain].left <= 0 {
            return;
        }
        while let Some(vcpu) = self.domains[domain].parked.pop() {
            // One that has blocked since wakes by itself.
            if self.vcpus[vcpu.index()].place == Place::Parked {
                self.enqueue(vcpu);
                self.tickle(now, vcpu, raise);
            }
        }
    }
}
