//! Claims: who must begin to run by when, and what is left of its slice.
//!
//! Policy lives in [`EdfCredit`](crate::EdfCredit); here is what a claim is.

use super::DomainClass;
use crate::{Host, PcpuId, PcpuSet, VcpuId};
use tailbound_units::Nanos;

/// A right to CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// Moment by which it must have begun to run.
    deadline: Nanos,
    /// Rest of its slice.
    left: Nanos,
}

#[derive(Debug, Clone)]
struct Vcpu {
    class: DomainClass,
    affinity: PcpuSet,
    claim: Option<Claim>,
    /// pCPU in whose queue the claim waits.
    queued_on: Option<PcpuId>,
    /// While it runs: up to when its CPU time is taken off its slice.
    counted_to: Nanos,
    /// While it runs: when the first and the latest event arrived after those it
    /// claims for.
    renewed: Option<(Nanos, Nanos)>,
    /// Earliest next claim of a periodic vCPU.
    next_release: Nanos,
}

/// The claims of all vCPUs, and the queue of each pCPU.
#[derive(Debug, Clone)]
pub(super) struct Claims {
    vcpus: Vec<Vcpu>,
    /// Claims by deadline; first come, first served among equals.
    queues: Vec<Vec<VcpuId>>,
    slice: Nanos,
}

impl Claims {
    pub(super) fn new(host: &Host, classes: &[DomainClass], slice: Nanos) -> Self {
        let vcpus = host.vcpus().iter().map(|vcpu| Vcpu {
            class: classes[vcpu.domain.index()],
            affinity: vcpu.affinity,
            claim: None,
            queued_on: None,
            counted_to: Nanos::ZERO,
            renewed: None,
            next_release: Nanos::ZERO,
        });
        Self {
            vcpus: vcpus.collect(),
            queues: vec![Vec::new(); host.pcpus() as usize],
            slice,
        }
    }

    pub(super) fn class(&self, vcpu: VcpuId) -> DomainClass {
        self.vcpus[vcpu.index()].class
    }

    pub(super) fn deadline(&self, vcpu: VcpuId) -> Option<Nanos> {
        let claim = self.vcpus[vcpu.index()].claim;
        claim.map(|claim| claim.deadline)
    }

    /// The deadline and the rest of the slice of `vcpu`, which runs.
    pub(super) fn running(&self, vcpu: VcpuId) -> Option<(Nanos, Nanos)> {
        let claim = self.vcpus[vcpu.index()].claim;
        claim.map(|claim| (claim.deadline, claim.left))
    }

    /// `vcpu` claims a slice from `now` on, which may be a moment since which it
    /// runs; a periodic one not before its period is over.
    pub(super) fn begin(&mut self, now: Nanos, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        let from = now.max(row.next_release);
        if let DomainClass::Periodic {
            period: Some(period),
            ..
        } = row.class
        {
            row.next_release = from.saturating_add(period);
        }
        row.counted_to = now;
        row.claim = row.class.deadline().map(|deadline| Claim {
            deadline: from.saturating_add(deadline),
            left: self.slice,
        });
    }

    /// Returns whether `vcpu`, which stopped but would go on, claims anew.
    pub(super) fn claims_again(&self, vcpu: VcpuId) -> bool {
        let row = &self.vcpus[vcpu.index()];
        match row.class {
            DomainClass::Periodic { period: None, .. } => true,
            DomainClass::Periodic { .. } => row.claim.is_none(),
            DomainClass::Aperiodic { .. } | DomainClass::Driver | DomainClass::Normal => false,
        }
    }

    /// An event arrived for `vcpu`, which has a claim already: while that waits,
    /// a whole slice serves both; while it runs, there may be too little left.
    pub(super) fn renew(&mut self, now: Nanos, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        match &mut row.claim {
            Some(claim) if row.queued_on.is_some() => claim.left = self.slice,
            _ => {
                let first = row.renewed.map_or(now, |(first, _)| first);
                row.renewed = Some((first, now));
            }
        }
    }

    /// Queues the claim of `vcpu`, if it has one, on `pcpu`.
    pub(super) fn enqueue(&mut self, vcpu: VcpuId, pcpu: PcpuId) {
        self.dequeue(vcpu);
        let row = &mut self.vcpus[vcpu.index()];
        let Some(Claim { deadline, left }) = &mut row.claim else {
            return;
        };
        // One whole slice, when it is its turn again, serves both events. What a
        // periodic one has to do is not known to have been done.
        let periodic = matches!(row.class, DomainClass::Periodic { .. });
        if row.renewed.take().is_some() || periodic {
            *left = self.slice;
        }
        let deadline = *deadline;
        row.queued_on = Some(pcpu);
        let vcpus = &self.vcpus;
        let before = |other: &VcpuId| {
            let claim = vcpus[other.index()].claim;
            claim.is_some_and(|claim| claim.deadline <= deadline)
        };
        let queue = &mut self.queues[pcpu.index()];
        let at = queue.partition_point(before);
        queue.insert(at, vcpu);
    }

    fn dequeue(&mut self, vcpu: VcpuId) {
        if let Some(pcpu) = self.vcpus[vcpu.index()].queued_on.take() {
            self.queues[pcpu.index()].retain(|&queued| queued != vcpu);
        }
    }

    /// The first claim on `pcpu`, and its deadline.
    pub(super) fn first(&self, pcpu: PcpuId) -> Option<(Nanos, VcpuId)> {
        let vcpu = *self.queues[pcpu.index()].first()?;
        Some((self.deadline(vcpu)?, vcpu))
    }

    /// Returns the waiting claim on any pCPU that may run on `pcpu` and has the earliest deadline.
    pub(super) fn earliest_for(&self, pcpu: PcpuId) -> Option<VcpuId> {
        let waiting = self.queues.iter().flatten().copied();
        waiting
            .filter(|vcpu| self.vcpus[vcpu.index()].affinity.contains(pcpu))
            .min_by_key(|&vcpu| self.deadline(vcpu))
    }

    /// Removes `vcpu`, which is about to run, from its queue. Returns the rest of its slice, if it
    /// has a claim.
    pub(super) fn take(&mut self, vcpu: VcpuId) -> Option<Nanos> {
        self.dequeue(vcpu);
        let claim = self.vcpus[vcpu.index()].claim;
        claim.map(|claim| claim.left)
    }

    /// Counts the CPU time of `vcpu` from `now` on towards its slice.
    pub(super) fn count_from(&mut self, now: Nanos, vcpu: VcpuId) {
        self.vcpus[vcpu.index()].counted_to = now;
    }

    /// Subtracts the CPU time of `vcpu` from its slice. Returns whether that ends the claim.
    pub(super) fn settle(&mut self, now: Nanos, vcpu: VcpuId) -> bool {
        let row = &mut self.vcpus[vcpu.index()];
        let ran = now - row.counted_to;
        row.counted_to = now;
        let Some(claim) = &mut row.claim else {
            return false;
        };
        claim.left = claim.left.saturating_sub(ran);
        let ends = claim.left == Nanos::ZERO;
        if ends {
            row.claim = None;
        }
        ends
    }

    /// Takes the times of the first and the latest event that are still unserved after the claim of
    /// `vcpu`, which has just ended. Its CPU time since then counts.
    pub(super) fn take_renewed(&mut self, now: Nanos, vcpu: VcpuId) -> Option<(Nanos, Nanos)> {
        let renewed = self.vcpus[vcpu.index()].renewed.take();
        renewed.filter(|&(_, latest)| now - latest < self.slice)
    }

    /// Ends the claim of `vcpu`.
    pub(super) fn end(&mut self, vcpu: VcpuId) {
        self.dequeue(vcpu);
        let row = &mut self.vcpus[vcpu.index()];
        row.claim = None;
        row.renewed = None;
    }
}
