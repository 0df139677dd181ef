//! Checks whether refusing ports exceed their capacity by the exact curves, or only by the six
//! approximating ones.

use super::Datacentre;
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
    pub(super) fn are_all_over(&self, refused: &[(PortId, Crossing)]) -> bool {
        // The other rules look at rates alone, which are exact.
        if refused.is_empty() || self.policy != Policy::Silo {
            return true;
        }
        if self.tenants.len() > TENANTS {
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
            let port = self.offered(*id);
            sum.is_exactly_over(&curves, port.rate, port.backlog_limit, port.feed)
        })
    }
}
