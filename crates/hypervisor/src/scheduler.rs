//! The policy: which vCPU runs on which pCPU, for how long.

use crate::{PcpuId, PcpuSet, VcpuId};
use tailbound_units::Nanos;

/// Reason why a blocked vCPU became runnable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// An event from outside arrived for it: a packet, a notification.
    Event,
    /// A timer of its own fired.
    Timer,
    /// The toolstack ended a pause.
    Unpause,
}

/// State of a pCPU when its scheduler chooses again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The vCPU that runs.
    pub vcpu: VcpuId,
    /// True if it may go on; false after it blocked or was paused.
    pub runnable: bool,
    /// True if it yielded.
    pub yielded: bool,
}

/// A scheduler's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The vCPU that runs from now on; `None`: the pCPU idles.
    pub next: Option<VcpuId>,
    /// Latest moment of the next choice; `None`: when something is raised.
    pub until: Option<Nanos>,
}

/// A scheduler, in the cut of Xen's `struct scheduler`: policy alone.
///
/// [`Machine`](crate::Machine) calls it, knows which vCPU runs where, and owns time.
/// Methods that may want a pCPU to be asked again add it to `raise` (Xen's
/// `SCHEDULE_SOFTIRQ`); it is then asked at the same instant, after all timers
/// of that instant, in ascending order of pCPUs.
///
/// A vCPU is in one of three states here: *blocked* (also while paused), which
/// is how all start; *queued*; *running*. `wake` takes it out of the first,
/// `schedule` moves it between the others and back.
pub trait Scheduler {
    /// Handles the wake-up of `vcpu`, which was blocked and is runnable now.
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, cause: Wake, raise: &mut PcpuSet);

    /// Handles an event for `vcpu`, which is queued or running and so does not wake.
    /// Xen's schedulers do not learn of it.
    fn notify(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        let _ = (now, vcpu, raise);
    }

    /// Handles a pause of `vcpu`. A queued vCPU must leave its queue. For a running vCPU its pCPU
    /// must be raised; `schedule` is then called with a vCPU that is not runnable.
    fn sleep(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet);

    /// Chooses what `pcpu` runs from now on; `current` is none when it idles.
    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice;

    /// Returns the earliest of the scheduler's own timers: ticks, accounting,
    /// replenishment, deadlines.
    fn poll_at(&self) -> Option<Nanos>;

    /// Handles those of its timers that are due.
    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet);
}

impl<S: Scheduler + ?Sized> Scheduler for Box<S> {
    fn wake(&mut self, now: Nanos, vcpu: VcpuId, cause: Wake, raise: &mut PcpuSet) {
        (**self).wake(now, vcpu, cause, raise);
    }
    fn notify(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        (**self).notify(now, vcpu, raise);
    }
    fn sleep(&mut self, now: Nanos, vcpu: VcpuId, raise: &mut PcpuSet) {
        (**self).sleep(now, vcpu, raise);
    }
    fn schedule(
        &mut self,
        now: Nanos,
        pcpu: PcpuId,
        current: Option<Current>,
        raise: &mut PcpuSet,
    ) -> Slice {
        (**self).schedule(now, pcpu, current, raise)
    }
    fn poll_at(&self) -> Option<Nanos> {
        (**self).poll_at()
    }
    fn timer(&mut self, now: Nanos, raise: &mut PcpuSet) {
        (**self).timer(now, raise);
    }
}
