//! The loads of one tenant, computed once for all equal ports.

use crate::load::{Interval, Load, Source, Waits};

/// Number of cached loads, a power of two: those of a rack's hosts with any number of machines, and
/// those of the racks and pods that are checked in turn.
const KEPT: usize = 128;

/// Parameters of a tenant's load at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    /// Smallest and largest number of machines that send.
    pub(super) senders: Interval<u32>,
    /// Wait of their frames before the port.
    pub(super) waits: Waits,
    /// Over how many links they are spread.
    pub(super) parts: u32,
}

/// Cache of loads. A search needs the same few loads repeatedly.
#[derive(Debug)]
pub(super) struct Loads {
    source: Source,
    /// Cached loads, each at the index of its key; empty before the first query.
    cache: Vec<Option<(Key, Load)>>,
    vms: u32,
}

impl Loads {
    /// Returns an empty cache for a tenant with `vms` machines.
    pub(super) fn new(source: Source, vms: u32) -> Self {
        let cache = Vec::new();
        Self { source, cache, vms }
    }

    /// Returns a load that is nowhere above any of the key's: [`Source::at_least`].
    #[inline]
    pub(super) fn at_least(&mut self, key: Key) -> &Load {
        if self.cache.is_empty() {
            self.cache.resize(KEPT, None);
        }
        let cache = &mut self.cache[key.place()];
        if cache.as_ref().is_some_and(|known| known.0 != key) {
            *cache = None;
        }
        let (source, vms) = (&self.source, self.vms);
        let make = || source.at_least(key.senders, vms, key.waits, key.parts);
        &cache.get_or_insert_with(|| (key, make())).1
    }
}

impl Key {
    /// Returns the index of the load in the cache.
    #[inline]
    fn place(&self) -> usize {
        let Interval { least, most } = self.senders;
        let times = self.waits.times;
        let waited = times.least.0 ^ times.most.0.rotate_left(32);
        // The upper digits of the product depend on all others.
        let mixed = (waited ^ u64::from(least) << 20 ^ u64::from(most) << 40)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (u64::BITS - KEPT.trailing_zeros())) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailbound_units::{Bursts, Bytes, Nanos, Rate};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// The keys are many more than the cache has room for, and some are repeated.
        #[test]
        fn cached_loads_equal_computed_loads(
            asked in prop::collection::vec((1_u32..40, 0_u32..4, 0_u64..4, 0_u64..2, 1_u32..3), 400),
        ) {
            let (rate, fast) = (Rate::from_mbit(250), Rate::from_mbit(1_000));
            let bursts = Bursts::PerReceiver;
            let source = Source::new(rate, Bytes(15_000), Some(fast), bursts, Bytes(1_538));
            let mut loads = Loads::new(source, 50);
            for (least, more, soonest, later, parts) in asked {
                let soonest = Nanos(100_000 * soonest);
                let key = Key {
                    senders: Interval { least, most: least + more },
                    waits: Interval { least: soonest, most: soonest + Nanos(later) }.into(),
                    parts,
                };
                let computed = source.at_least(key.senders, 50, key.waits, parts);
                prop_assert_eq!(*loads.at_least(key), computed);
            }
        }
    }
}
