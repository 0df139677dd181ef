//! The ages of a table's entries, to find the one that was idle for longest, in one byte for each.
//!
//! The byte is the grain of about a second in which its entry was last used. A use writes it at most
//! once in a grain, and no other entry's. The oldest grain of any entry follows from the number of
//! entries in each; a hand goes round the bytes and stops at the entries of that grain. Each round
//! ends a grain, so searches cost a round a second at most, and 254 rounds more.
//!
//! The order is exact to a grain, up to an age of two minutes. Entries that were idle for longer
//! count as equally old.

use tailbound_units::Nanos;

/// Bits of a time within one grain: about a second.
pub(super) const GRAIN: u32 = 30;

/// No entry.
const FREE: u8 = 0;
/// The first grain with a number of its own, and all before it.
const OLDEST: u8 = 1;
/// The last grain, for which a byte has a number.
const LAST: u64 = u8::MAX as u64;
/// Grains that keep a number of their own when all numbers are in use.
const KEPT: u64 = 128;
/// Bytes of one step of a search.
const STEP: usize = 256;

/// The grains of entries by their number. The module describes it.
#[derive(Debug)]
pub(super) struct Ages {
    grains: Vec<u8>,
    /// Number of entries in each grain.
    counts: [u32; 1 + u8::MAX as usize],
    /// The grain with the number 0, counted from the begin of time.
    base: u64,
    /// No entry is in an earlier grain.
    oldest: u8,
    hand: usize,
}

impl Ages {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            grains: Vec::with_capacity(capacity),
            counts: [0; 1 + u8::MAX as usize],
            base: 0,
            oldest: u8::MAX,
            hand: 0,
        }
    }

    /// Adds an entry, or records a use of one. Entries are numbered without gaps.
    pub(super) fn note(&mut self, now: Nanos, index: usize) {
        let grain = self.number(now);
        if index == self.grains.len() {
            self.grains.push(FREE);
        }
        self.set(index, grain);
        self.oldest = self.oldest.min(grain);
    }

    /// Forgets an entry.
    pub(super) fn remove(&mut self, index: usize) {
        self.set(index, FREE);
    }

    #[inline]
    fn set(&mut self, index: usize, grain: u8) {
        let before = std::mem::replace(&mut self.grains[index], grain);
        self.counts[usize::from(before)] = self.counts[usize::from(before)].wrapping_sub(1);
        self.counts[usize::from(grain)] = self.counts[usize::from(grain)].wrapping_add(1);
    }

    /// Returns the number of the present grain.
    #[inline]
    fn number(&mut self, now: Nanos) -> u8 {
        let grain = now.0 >> GRAIN;
        if grain.saturating_sub(self.base) > LAST {
            self.renumber(grain);
        }
        (grain.saturating_sub(self.base) as u8).max(OLDEST)
    }

    /// Renumbers all grains, so that the present one is [`KEPT`].
    #[cold]
    fn renumber(&mut self, grain: u64) {
        let base = grain - KEPT;
        let less = (base - self.base).min(LAST) as u8;
        for grain in &mut self.grains {
            // Free entries stay free.
            *grain = grain.saturating_sub(less).max(OLDEST.min(*grain));
        }
        let counts = std::mem::replace(&mut self.counts, [0; 1 + u8::MAX as usize]);
        self.counts[usize::from(FREE)] = counts[usize::from(FREE)];
        for (grain, count) in (OLDEST..=u8::MAX).zip(&counts[1..]) {
            self.counts[usize::from(grain.saturating_sub(less).max(OLDEST))] += count;
        }
        self.base = base;
        self.oldest = OLDEST;
    }

    /// Returns an entry in the oldest grain: the same one until it is used or removed. `None`
    /// without entries.
    pub(super) fn oldest(&mut self) -> Option<usize> {
        while self.counts[usize::from(self.oldest)] == 0 {
            self.oldest = self.oldest.checked_add(1)?;
        }
        let find = |grains: &[u8]| {
            let mut steps = grains.chunks(STEP).enumerate();
            let (step, chunk) = steps.find(|(_, chunk)| chunk.contains(&self.oldest))?;
            let place = chunk.iter().position(|grain| *grain == self.oldest)?;
            Some(step * STEP + place)
        };
        let behind = find(&self.grains[self.hand..]).map(|place| self.hand + place);
        let found = behind.or_else(|| find(&self.grains[..self.hand]));
        debug_assert!(found.is_some(), "entries of the grain are counted");
        self.hand = found?;
        Some(self.hand)
    }

    /// Counts the oldest entry as used now; the next search begins behind it.
    pub(super) fn pass_over(&mut self, now: Nanos, index: usize) {
        self.note(now, index);
        self.hand = index + 1;
    }

    /// Time before which all uses were.
    pub(super) const fn end(&self) -> Nanos {
        Nanos((self.base + LAST + 1) << GRAIN)
    }

    /// Returns the numbers of all entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let grains = self.grains.iter().enumerate();
        grains
            .filter(|(_, grain)| **grain != FREE)
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_oldest_entry_is_exact_to_a_grain_within_two_minutes(
            steps in prop::collection::vec((0_usize..12, 0_u8..6, 0_u64..40), 0..300),
        ) {
            let (mut ages, mut model) = (Ages::new(12), BTreeMap::new());
            let (mut now, mut known) = (Nanos::from_secs(1_000_000), 0);
            for (index, action, seconds) in steps {
                now += Nanos::from_secs(seconds);
                let (index, grain) = (index.min(known), now.0 >> GRAIN);
                match (action, ages.oldest()) {
                    (0, _) if model.remove(&index).is_some() => ages.remove(index),
                    (1, Some(oldest)) => {
                        ages.remove(oldest);
                        model.remove(&oldest);
                    }
                    (2, Some(oldest)) => {
                        ages.pass_over(now, oldest);
                        model.insert(oldest, grain);
                    }
                    _ => {
                        ages.note(now, index);
                        model.insert(index, grain);
                        known = known.max(index + 1);
                    }
                }
                prop_assert!(ages.iter().eq(model.keys().copied()));
                let oldest = ages.oldest();
                prop_assert_eq!(oldest.is_none(), model.is_empty());
                if let Some(oldest) = oldest {
                    let first = *model.values().min().expect("there is one");
                    let found = model[&oldest];
                    prop_assert!(
                        found == first || grain - found >= KEPT - 1,
                        "{found} instead of {first} at {grain}"
                    );
                }
            }
        }
    }
}
