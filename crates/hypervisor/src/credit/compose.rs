//! Extensions for schedulers on top of [`Credit`]: a queue in the order of credit, wakes without
//! BOOST, and a reserve of credit.

use super::{Credit, Place};
use crate::{PcpuId, PcpuSet, VcpuId};

/// Credit of a vCPU that is kept out of the ordinary: what only certain CPU time
/// is paid from, and debt that the accounting would forgive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reserve {
    /// The part of what it earns that goes here; none: it has no reserve, and
    /// debt is forgiven.
    percent: Option<i64>,
    saved: i64,
    arrears: i64,
    /// True while its CPU time is paid from here.
    drawn_on: bool,
}

impl Reserve {
    /// Pays arrears with `share`, then sets aside its part of it, up to `most`
    /// in all; returns the rest.
    pub(super) fn fill(&mut self, share: i64, most: i64) -> i64 {
        let Some(percent) = self.percent else {
            return share;
        };
        let paid = share.min(self.arrears);
        self.arrears -= paid;
        let share = share - paid;
        let part = (share * percent / 100).min(most - self.saved);
        self.saved += part;
        share - part
    }

    /// Remembers debt that is about to be forgiven.
    pub(super) fn owe(&mut self, credits: i64) {
        if self.percent.is_some() {
            self.arrears += credits;
        }
    }

    /// Pays as much of `credits` as it may and can; returns the rest.
    pub(super) fn draw(&mut self, credits: i64) -> i64 {
        let part = if self.drawn_on {
            credits.min(self.saved)
        } else {
            0
        };
        self.saved -= part;
        credits - part
    }
}

impl Credit {
    /// Sorts vCPUs by credit within a class from now on.
    pub(crate) fn order_by_credit(&mut self) {
        self.sorted_fully = true;
    }

    /// From now on forgives no debt of `vcpu`, and puts `percent` of its income into its reserve,
    /// up to a pCPU's income in a slice: Xen's limit on other savings. With a positive percentage
    /// the reserve begins full.
    pub(crate) fn set_aside(&mut self, vcpu: VcpuId, percent: u32) {
        let most = self.config.credits_per_tslice();
        let reserve = &mut self.vcpus[vcpu.index()].reserve;
        reserve.percent = Some(i64::from(percent));
        reserve.saved = if percent > 0 { most } else { 0 };
    }

    /// Returns the reserve of `vcpu`.
    pub(crate) fn reserve(&self, vcpu: VcpuId) -> i64 {
        self.vcpus[vcpu.index()].reserve.saved
    }

    /// Sets whether the CPU time of `vcpu` is paid from its reserve until that is empty. Its
    /// earlier CPU time must be paid.
    pub(crate) fn draw_on_reserve(&mut self, vcpu: VcpuId, draw: bool) {
        self.vcpus[vcpu.index()].reserve.drawn_on = draw;
    }

    /// Returns whether the CPU time of `vcpu` is paid from its reserve.
    pub(crate) fn draws_on_reserve(&self, vcpu: VcpuId) -> bool {
        self.vcpus[vcpu.index()].reserve.drawn_on
    }

    /// Sees that `vcpu` earns, whether or not a tick has found it running.
    pub(crate) fn keep_active(&mut self, vcpu: VcpuId) {
        if !self.account(vcpu).active {
            self.activate(vcpu);
        }
    }

    /// Returns whether `vcpu` owes at least `halves` halves of a pCPU's income in a slice, beyond
    /// the debt that the accounting leaves.
    pub(crate) fn is_bankrupt(&self, vcpu: VcpuId, halves: i64) -> bool {
        let half = self.config.credits_per_tslice() / 2;
        self.vcpus[vcpu.index()].reserve.arrears >= halves * half
    }

    /// Returns the pCPU in whose queue `vcpu` is, or on which it runs or ran last.
    pub(crate) fn home(&self, vcpu: VcpuId) -> PcpuId {
        self.vcpus[vcpu.index()].home
    }

    /// Returns whether `vcpu` waits in a queue.
    pub(crate) fn is_queued(&self, vcpu: VcpuId) -> bool {
        self.vcpus[vcpu.index()].place == Place::Queued
    }

    /// `vcpu` is runnable again, in the class it had.
    pub(crate) fn wake_unboosted(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        self.admit(vcpu, true, raise);
    }
}

#[cfg(test)]
mod tests {
    use super::Reserve;
    use proptest::prelude::*;

    /// Limit of saved credit in the tests.
    const MAX_CREDIT: i64 = 300;

    fn reserve(percent: i64) -> Reserve {
        Reserve {
            percent: Some(percent),
            ..Reserve::default()
        }
    }

    #[test]
    fn unused_reserve_is_carried_over_until_full() {
        let mut reserve = reserve(20);
        assert_eq!(reserve.fill(100, MAX_CREDIT), 80);
        assert_eq!(reserve.fill(100, MAX_CREDIT), 80);
        assert_eq!(reserve.saved, 40);
        assert_eq!(reserve.fill(1_300, MAX_CREDIT), 1_040, "to the brim");
        assert_eq!(reserve.fill(100, MAX_CREDIT), 100, "nothing is lost");
    }

    #[test]
    fn only_a_reserve_that_is_in_use_pays() {
        let mut reserve = reserve(20);
        reserve.fill(50, MAX_CREDIT);
        assert_eq!(reserve.draw(4), 4);
        reserve.drawn_on = true;
        assert_eq!(reserve.draw(4), 0);
        assert_eq!(reserve.draw(10), 4, "6 were left");
    }

    proptest! {
        #[test]
        fn no_credit_is_made_or_lost(
            percent in 0_i64..=100,
            steps in proptest::collection::vec((0_i64..600, 0_i64..600, 0_i64..600, any::<bool>()), 0..50),
        ) {
            let mut reserve = reserve(percent);
            let mut sum = 0;
            for (share, used, forgiven, drawn_on) in steps {
                reserve.drawn_on = drawn_on;
                reserve.owe(forgiven);
                let rest = reserve.fill(share, MAX_CREDIT);
                let paid = reserve.draw(used);
                prop_assert!((0..=share).contains(&rest) && (0..=used).contains(&paid));
                prop_assert!((0..=MAX_CREDIT).contains(&reserve.saved) && reserve.arrears >= 0);
                sum += share - rest - (used - paid) - forgiven;
                prop_assert_eq!(sum, reserve.saved - reserve.arrears);
            }
        }
    }
}
