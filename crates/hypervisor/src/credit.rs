//! Xen's credit scheduler.

mod config;

pub use config::{
    AccountingTimer, Boost, CreditConfig, Debit, Ratelimit, Steal, Surplus, Tickle, WeightOf,
    XenVersion, Yielding,
};

use crate::{Current, Host, PcpuId, PcpuSet, Scheduler, Slice, VcpuId, Wake};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Xen's credit scheduler.
#[derive(Debug, Clone)]
pub struct Credit {
    config: CreditConfig,
    queue: VecDeque<VcpuId>,
    all: PcpuSet,
}

impl Credit {
    /// The scheduler of `host`.
    pub fn new(config: CreditConfig, host: &Host) -> Self {
        Self {
            config,
            queue: VecDeque::new(),
            all: host.all_pcpus(),
        }
    }
}

impl Scheduler for Credit {
    fn wake(&mut self, _: Nanos, vcpu: VcpuId, _: Wake, raise: &mut PcpuSet) {
        self.queue.push_back(vcpu);
        *raise = raise.or(&self.all);
    }
    fn sleep(&mut self, _: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        self.queue.retain(|&queued| queued != vcpu);
        *raise = raise.or(&self.all);
    }
    fn schedule(
        &mut self,
        now: Nanos,
        _: PcpuId,
        current: Option<Current>,
        _: &mut PcpuSet,
    ) -> Slice {
        if let Some(current) = current.filter(|current| current.runnable) {
            self.queue.push_back(current.vcpu);
        }
        Slice {
            next: self.queue.pop_front(),
            until: Some(now + self.config.tslice),
        }
    }
    fn poll_at(&self) -> Option<Nanos> {
        None
    }
    fn timer(&mut self, _: Nanos, _: &mut PcpuSet) {}
}
