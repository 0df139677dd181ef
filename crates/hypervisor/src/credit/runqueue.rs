//! Run queues: one a pCPU, by class, first come first served within a class.
//!
//! A queue is sorted when something is put in, not when classes change. The
//! accounting changes the classes of queued vCPUs; each pCPU sorts at its next
//! tick, and then only OVER from the rest.

use super::{Class, Credit, Place, Push, Steal, Yielding};
use crate::{PcpuId, PcpuSet, VcpuId};
use std::cmp::Reverse;
use tailbound_units::Nanos;

impl Credit {
    /// Queues `vcpu` at its home behind its class, or before it if `first`. One
    /// that yielded goes behind one more.
    pub(crate) fn enqueue(&mut self, vcpu: VcpuId, first: bool) {
        let row = &mut self.vcpus[vcpu.index()];
        row.place = Place::Queued;
        let (account, yielded, home) = (row.account, row.yielded, row.home);
        let (class, fully) = (account.class, self.sorted_fully);
        let vcpus = &self.vcpus;
        let queue = &mut self.pcpus[home.index()].queue;
        let goes_before = |&other: &VcpuId| {
            let other = &vcpus[other.index()].account;
            let before = first || (fully && other.credit < account.credit);
            other.class < class || (before && other.class == class)
        };
        let at = queue.iter().position(goes_before);
        let at = at.map_or(queue.len(), |at| at + usize::from(yielded));
        queue.insert(at, vcpu);
    }

    /// Removes `vcpu` from its queue; returns whether it was in one.
    pub(crate) fn dequeue(&mut self, vcpu: VcpuId) -> bool {
        let row = &mut self.vcpus[vcpu.index()];
        if row.place != Place::Queued {
            return false;
        }
        row.place = Place::Off;
        let queue = &mut self.pcpus[row.home.index()].queue;
        queue.retain(|&queued| queued != vcpu);
        true
    }

    /// Removes `vcpu` from its queue, or from its pCPU at the next decision there.
    pub(super) fn withdraw(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        let row = &self.vcpus[vcpu.index()];
        if row.place == Place::Running {
            raise.insert(row.home);
        } else {
            self.dequeue(vcpu);
        }
    }

    /// Removes and returns the next vCPU on `pcpu`: the head of its queue. If that is OVER or
    /// missing and another pCPU has a better one, the latter is stolen.
    pub(crate) fn pick(&mut self, now: Nanos, pcpu: PcpuId) -> Option<VcpuId> {
        let head = self.pcpus[pcpu.index()].queue.front().copied();
        let class = head.map(|vcpu| self.class(vcpu));
        if class <= Some(Class::Over)
            && let Some(stolen) = self.steal(now, pcpu, class)
        {
            return Some(stolen);
        }
        let next = self.pcpus[pcpu.index()].queue.pop_front()?;
        self.vcpus[next.index()].yielded = false;
        Some(next)
    }

    /// Steals a vCPU of a class better than `than` from another pCPU's queue.
    fn steal(&mut self, now: Nanos, pcpu: PcpuId, than: Option<Class>) -> Option<VcpuId> {
        let place = &mut self.pcpus[pcpu.index()];
        let since = place.last_steal.map(|last| now - last);
        if since.is_some_and(|since| since < self.config.steal_interval) {
            return None;
        }
        place.last_steal = Some(now);
        let before = match self.config.steal {
            Steal::FromNeighbour => pcpu,
            Steal::AfterLastVictim => self.last_victim,
        };
        let mut workers = self.all;
        for idler in self.idlers.iter() {
            workers.remove(idler);
        }
        workers.remove(pcpu);
        let mut peer = before;
        while let Some(next) = workers.next_after(peer) {
            peer = next;
            workers.remove(peer);
            if let Some(vcpu) = self.steal_from(now, peer, pcpu, than) {
                self.last_victim = peer;
                return Some(vcpu);
            }
        }
        None
    }

    fn steal_from(
        &mut self,
        now: Nanos,
        peer: PcpuId,
        pcpu: PcpuId,
        than: Option<Class>,
    ) -> Option<VcpuId> {
        let place = &self.pcpus[peer.index()];
        // An idle one is about to take its work itself.
        place.current?;
        let vcpus = &self.vcpus;
        let better = |&&vcpu: &&VcpuId| Some(vcpus[vcpu.index()].account.class) > than;
        let fits = |&&vcpu: &&VcpuId| {
            let row = &vcpus[vcpu.index()];
            let kept = row.yielded && self.config.yielding == Yielding::NotStolen;
            let hot = now - row.last_run < self.config.migration_delay;
            row.affinity.contains(pcpu) && !hot && !kept
        };
        let vcpu = *place.queue.iter().take_while(better).find(fits)?;
        self.dequeue(vcpu);
        self.vcpus[vcpu.index()].home = pcpu;
        Some(vcpu)
    }

    /// Moves all that is not OVER before the rest and keeps the order of both; sorts by class and
    /// credit if the queue is sorted fully.
    pub(super) fn sort(&mut self, pcpu: PcpuId) {
        let vcpus = &self.vcpus;
        let account = |vcpu: &VcpuId| vcpus[vcpu.index()].account;
        let queue = self.pcpus[pcpu.index()].queue.make_contiguous();
        if self.sorted_fully {
            queue.sort_by_key(|vcpu| Reverse((account(vcpu).class, account(vcpu).credit)));
        } else {
            queue.sort_by_key(|vcpu| account(vcpu).class == Class::Over);
        }
    }

    /// The best pCPU for `vcpu`: its own, or an idler if others wait there.
    pub(super) fn best_pcpu(&self, vcpu: VcpuId) -> PcpuId {
        let row = &self.vcpus[vcpu.index()];
        let home = &self.pcpus[row.home.index()];
        if !self.config.seek_idler || home.queue.is_empty() || self.idlers.contains(row.home) {
            return row.home;
        }
        let fitting = self.idlers.and(&row.affinity);
        fitting.next_after(row.home).unwrap_or(row.home)
    }

    /// Moves `vcpu`, which has just stopped, to its new pCPU and wakes it there, if a move is
    /// pending.
    pub(crate) fn migrate(&mut self, vcpu: VcpuId, raise: &mut PcpuSet) {
        if !std::mem::take(&mut self.vcpus[vcpu.index()].migrating) {
            return;
        }
        let home = self.best_pcpu(vcpu);
        let row = &mut self.vcpus[vcpu.index()];
        row.home = home;
        if row.runnable && !row.account.parked {
            // Until 4.6 a move counted as a sleep.
            let moved = self.config.push != Push::Always;
            self.release(vcpu, moved, raise);
        }
    }
}
