//! Finds the first of many nodes with enough free slots without looking at all of them.

/// Numbers in a row, and the largest of each half, quarter, ...
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Largest {
    /// A binary heap's shape: the values begin at `leaves`.
    values: Vec<u32>,
    leaves: usize,
}

impl Largest {
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self {
            values: vec![0; 2 * leaves],
            leaves,
        }
    }

    pub(super) fn set(&mut self, index: usize, value: u32) {
        let mut at = self.leaves + index;
        self.values[at] = value;
        while at > 1 {
            at /= 2;
            let largest = self.values[2 * at].max(self.values[2 * at + 1]);
            if self.values[at] == largest {
                return;
            }
            self.values[at] = largest;
        }
    }

    /// Returns the first index from `from` on whose value is at least `least`, which is above zero.
    pub(super) fn next(&self, from: usize, least: u32) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        let mut at = self.leaves + from;
        // Up, past subtrees that are too small, then down to the left.
        while self.values[at] < least {
            while at % 2 == 1 {
                at /= 2;
            }
            // Only the right edge leads back to the root.
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < self.leaves {
            at *= 2;
            if self.values[at] < least {
                at += 1;
            }
        }
        Some(at - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_large_enough_one_is_found(
            values in proptest::collection::vec(0_u32..5, 1..40),
            from in 0_usize..45,
            least in 1_u32..6,
        ) {
            let mut index = Largest::new(values.len());
            for (at, value) in values.iter().enumerate() {
                index.set(at, *value);
            }
            let expected = (from..values.len()).find(|at| values[*at] >= least);
            prop_assert_eq!(index.next(from, least), expected);
        }
    }
}
