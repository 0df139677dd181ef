//! Credit: what CPU time costs, and what is earned.
//!
//! Read [`Credit::distribute`] first. A vCPU pays for what it uses; each
//! accounting hands out what all pCPUs are worth for a slice, by weight, to the
//! vCPUs that are *active*: that a tick has found running. One that saves up
//! more than a slice's worth is not active any more; it still pays, and it
//! keeps its class, BOOST included, until a tick finds it again.

use super::{AccountingTimer, Class, Credit, Debit, Place, Surplus, WeightOf, signed};
use crate::{PcpuId, PcpuSet, VcpuId};
use tailbound_units::Nanos;

/// CPU time of one credit, in nanoseconds.
const CREDIT: i64 = 100_000;
/// The residual is counted in millionths of a credit.
const WHOLE: i64 = 1_000_000;

impl Credit {
    /// Subtracts the used CPU time of `vcpu`, which runs, from its credit.
    pub(crate) fn pay(&mut self, now: Nanos, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        let used = signed(now) - row.unpaid_from;
        let credits = match self.config.debit {
            Debit::FlatAtTick => return,
            // Rounding up may have paid some nanoseconds in advance.
            _ if used <= 0 => return,
            Debit::Rounded => (used + CREDIT / 2) / CREDIT,
            // As in Xen the remainder both stays unpaid and is carried; what
            // that counts twice it takes back the next time.
            Debit::Residual => {
                let due = used * 10 + row.residual;
                row.residual = due % WHOLE;
                due / WHOLE
            }
        };
        row.account.credit -= row.reserve.draw(credits);
        row.unpaid_from += credits * CREDIT;
    }

    /// Every 10 ms on every pCPU: who runs is sampled.
    pub(super) fn sample_all(&mut self, now: Nanos, raise: &mut PcpuSet) {
        self.ticks += 1;
        let third = self.ticks.is_multiple_of(self.config.ticks_per_tslice());
        let master = third && self.config.accounting == AccountingTimer::MasterTick;
        for id in 0..self.pcpus.len() {
            let pcpu = PcpuId(id as u32);
            let current = self.pcpus[id].current;
            if let Some(vcpu) = current {
                self.sample(now, pcpu, vcpu, raise);
            }
            if id == 0 && master {
                self.distribute(raise);
            }
            // Xen stops the tick of an idle pCPU, which has nothing to sort.
            if current.is_some() && self.pcpus[id].sorted != self.accountings {
                self.pcpus[id].sorted = self.accountings;
                self.sort(pcpu);
            }
        }
    }

    fn sample(&mut self, now: Nanos, pcpu: PcpuId, vcpu: VcpuId, raise: &mut PcpuSet) {
        let account = &mut self.vcpus[vcpu.index()].account;
        if account.class == Class::Boost {
            account.class = Class::Under;
        }
        if self.config.debit == Debit::FlatAtTick {
            let ticks = self.config.ticks_per_tslice().cast_signed();
            account.credit -= self.config.credits_per_tslice() / ticks;
        } else {
            self.pay(now, vcpu);
        }
        if !self.vcpus[vcpu.index()].account.active {
            self.activate(vcpu);
        } else if self.best_pcpu(vcpu) != pcpu {
            self.vcpus[vcpu.index()].migrating = true;
            raise.insert(pcpu);
        }
    }

    pub(super) fn activate(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        row.account.active = true;
        let id = row.domain;
        let domain = &mut self.domains[id.index()];
        let first = domain.active.is_empty();
        domain.active.push_front(vcpu);
        if first {
            self.active.push_front(id);
        }
        if first || self.config.weight_of == WeightOf::Vcpu {
            self.weight += domain.weight;
        }
    }

    fn deactivate(&mut self, vcpu: VcpuId) {
        let row = &mut self.vcpus[vcpu.index()];
        row.account.active = false;
        let id = row.domain;
        let domain = &mut self.domains[id.index()];
        domain.active.retain(|&active| active != vcpu);
        let last = domain.active.is_empty();
        if last {
            self.active.retain(|&active| active != id);
        }
        if last || self.config.weight_of == WeightOf::Vcpu {
            self.weight -= domain.weight;
        }
    }

    /// The accounting (Xen's `csched_acct`): hands out what all pCPUs earn in
    /// a slice, and sets classes by what each vCPU has then.
    pub(super) fn distribute(&mut self, raise: &mut PcpuSet) {
        let weights = self.weight;
        if weights == 0 {
            self.balance = 0;
            return;
        }
        let slice = self.config.credits_per_tslice();
        // What was overspent is handed out on top, so that the sum of all
        // credits goes towards zero.
        let overspent = (-self.balance).max(0);
        let mut pot = i64::from(self.all.len()) * slice + overspent;
        let mut weights_left = weights;
        let mut balance = 0;
        let mut some_want_more = false;
        let (mut domains, mut members) = std::mem::take(&mut self.scratch);
        domains.clear();
        domains.extend(&self.active);
        for &id in &domains {
            let domain = &self.domains[id.index()];
            let count = i64::from(domain.active.len() as u32);
            let weight = match self.config.weight_of {
                WeightOf::Domain => domain.weight,
                WeightOf::Vcpu => domain.weight * count,
            };
            weights_left -= weight;
            // At most what its active vCPUs can use if they never stop.
            let mut peak = count * slice + ceil(overspent * weight, weights);
            let mut cap = 0;
            if domain.cap > 0 {
                cap = ceil(domain.cap * slice, 100);
                peak = peak.min(cap);
                cap = ceil(cap, count);
            }
            let mut fair = ceil(pot * weight, weights);
            if fair < peak {
                some_want_more = true;
            } else {
                if weights_left > 0 {
                    pot += ceil((fair - peak) * weights, weights_left);
                }
                if some_want_more {
                    // Its turn comes first the next time, so that others get
                    // what it leaves.
                    self.active.retain(|&active| active != id);
                    self.active.push_front(id);
                }
                fair = peak;
            }
            fair = ceil(fair, count);
            members.clear();
            members.extend(&self.domains[id.index()].active);
            for &vcpu in &members {
                balance += self.earn(vcpu, fair, cap, raise);
            }
        }
        self.scratch = (domains, members);
        self.balance = balance;
        self.accountings += 1;
    }

    /// Adds its share to the credit of `vcpu` and sets its class. `cap` is its part of the
    /// domain's cap, 0 for none. Returns its credit.
    fn earn(&mut self, vcpu: VcpuId, share: i64, cap: i64, raise: &mut PcpuSet) -> i64 {
        let slice = self.config.credits_per_tslice();
        let row = &mut self.vcpus[vcpu.index()];
        let account = &mut row.account;
        account.credit += row.reserve.fill(share, slice);
        if account.credit < 0 {
            account.class = Class::Over;
            let parks = cap > 0 && account.credit < -cap && !account.parked;
            account.parked |= parks;
            row.reserve.owe((-slice - account.credit).max(0));
            account.credit = account.credit.max(-slice);
            if parks {
                self.withdraw(vcpu, raise);
            }
        } else {
            account.class = Class::Under;
            if account.parked {
                self.unpark(vcpu, raise);
            }
            let account = &mut self.vcpus[vcpu.index()].account;
            if account.credit > slice {
                account.credit = match self.config.surplus {
                    Surplus::Zero => 0,
                    Surplus::Halve => account.credit / 2,
                };
                self.deactivate(vcpu);
            }
        }
        self.vcpus[vcpu.index()].account.credit
    }

    /// Unparks `vcpu`. Its mark as parked is removed last, so that it does not wake in BOOST.
    fn unpark(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[vcpu.index()];
        if row.runnable && row.place == Place::Off {
            self.release(vcpu, false, raise);
        }
        self.vcpus[vcpu.index()].account.parked = false;
    }
}

/// `value` / `by`, rounded up. Neither is negative.
fn ceil(value: i64, by: i64) -> i64 {
    (value + by - 1) / by
}
