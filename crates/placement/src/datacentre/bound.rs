//! The bounds at a port with the present tenants, and its headroom.

use super::Datacentre;
use super::classes::{Classes, Links};
use crate::topology::PortId;
use tailbound_units::Nanos;

/// The worst case at a port with the tenants there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// The longest time that a frame with a guarantee may wait before it has left; zero if no frame
    /// can come. Under [`crate::Policy::Silo`] it exceeds the queue's capacity only if restored
    /// tenants overload the port.
    pub delay: Nanos,
    /// The most that can be waiting, in bits.
    pub backlog: u64,
}

impl Datacentre {
    /// Returns an upper bound on the worst case at a port with the tenants there are, computed from
    /// the port's [`crate::Load`].
    ///
    /// Returns None if more may come in the long run than leaves, so that there is no bound; this
    /// happens only under policies that do not check ports. The top has no ports, so nothing waits
    /// there.
    pub fn bound(&self, port: PortId) -> Option<Bound> {
        bound_of_class(self, None, port)
    }

    /// Returns what is left of the scarcer of a port's rate and its backlog limit, in thousandths,
    /// rounded down; zero if there is no bound.
    pub fn headroom(&self, port: PortId) -> u16 {
        let of = self.topology.port(port);
        let left = |used: u64, all: u64| {
            let left = u128::from(all.saturating_sub(used)) * 1_000;
            left.checked_div(u128::from(all))
                .map_or(if used == 0 { 1_000 } else { 0 }, |left| left as u16)
        };
        match self.bound(port) {
            Some(bound) => {
                left(bound.backlog, of.backlog_limit).min(left(self.load(port).rate(), of.rate))
            }
            None => 0,
        }
    }
}

/// Returns the same as [`Datacentre::bound`] for the frames of a class that exists; `None` also if
/// they are over the class's capacity because of frames of higher classes.
pub fn bound_of_class(dc: &Datacentre, class: Option<u8>, port: PortId) -> Option<Bound> {
    let rank = dc.topology.rank(class);
    let classes = Classes(dc);
    let load = classes.sum(rank, port);
    if load.is_none() {
        return Some(Bound::default());
    }
    let above = rank.checked_sub(1).map(|above| classes.sum(above, port));
    let above = above.filter(|above| !above.is_none());
    let of = classes.port(rank, above, port, Links::Built);
    let backlog = load.backlog(of.rate, of.feed)?;
    // A frame of best effort that is on each link's wire is finished first.
    let frames = u64::from(of.parts) * dc.topology.frame().0 * 8;
    let nanobits = u128::from(backlog + frames) * 1_000_000_000;
    let delay = nanobits.div_ceil(u128::from(of.rate.max(1)));
    let delay = Nanos(u64::try_from(delay).unwrap_or(u64::MAX));
    // The load counts frames of higher classes that come within the capacity.
    let is_bound = above.is_none() || delay <= of.capacity;
    is_bound.then_some(Bound { delay, backlog })
}
