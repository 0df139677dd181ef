//! Checks whether refusing ports exceed their capacity by the exact curves, or only by the six
//! approximating ones.

use super::Datacentre;
use super::classes::Classes;
use super::ports::{Crossing, for_each_crossing};
use crate::load::Exact;
use crate::request::Policy;
use crate::topology::PortId;
use std::collections::HashMap;

/// The most tenants among which those of a port are looked for.
const TENANTS: usize = 4_096;

impl Datacentre {
    /// Returns whether the exact sums of the tenants' curves prove that no port could carry the
    /// refused load beside its tenants. False without a proof, or with too many tenants.
    /// False also if several classes share one of these ports.
    pub(super) fn are_all_over(&self, rank: usize, refused: &[(PortId, Crossing)]) -> bool {
        // The other rules look at rates alone, which are exact.
        if refused.is_empty() || self.policy != Policy::Silo {
            return true;
        }
        let is_shared = |id: &PortId| Classes(self).are_several_at(rank, *id);
        if self.tenants.len() > TENANTS || refused.iter().any(|(id, _)| is_shared(id)) {
            return false;
        }
        let ports = refused.iter().map(|(id, _)| (*id, Vec::new()));
        let mut there: HashMap<PortId, Vec<Exact>> = ports.collect();
        for tenant in self.tenants.values() {
            for_each_crossing(&self.topology, self.policy, tenant, |id, crossing| {
                if let Some(curves) = there.get_mut(&id) {
                    curves.push(crossing.exact());
                }
            });
        }
        refused.iter().all(|(id, crossing)| {
            let own = crossing.exact();
            let others = there.get(id).into_iter().flatten();
            let curves: Vec<&Exact> = others.chain([&own]).collect();
            let sum = self.load(*id).plus(&crossing.load());
            let port = self.offered(*id, self.topology.port(*id));
            sum.is_exactly_over(&curves, port.rate, port.backlog_limit, port.feed)
        })
    }
}
