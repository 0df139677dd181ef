//! The possible sums of machines on several nodes.

use std::ops::RangeInclusive;

/// Numbers of machines, up to those of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Totals {
    most: u32,
    /// A bit for each number.
    words: Vec<u64>,
}

impl Totals {
    /// Returns the set with a single number, up to `most`.
    pub(super) fn only(number: u32, most: u32) -> Self {
        Self::range(number..=number, most)
    }

    /// The numbers of a range that are at most `most`.
    pub(super) fn range(numbers: RangeInclusive<u32>, most: u32) -> Self {
        let mut new = Self {
            most,
            words: vec![0; most as usize / 64 + 1],
        };
        for number in numbers.take_while(|number| *number <= most) {
            new.words[number as usize / 64] |= 1 << (number % 64);
        }
        new
    }

    pub(super) fn has(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(u32) -> bool) {
        for number in 0..=self.most {
            if self.has(number) && !keeps(number) {
                self.words[number as usize / 64] &= !(1 << (number % 64));
            }
        }
    }

    /// The sums of a number of this and one of `other`, as far as they are not too large.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut sums = Self::range(RangeInclusive::new(1, 0), self.most);
        for number in (0..=self.most).filter(|number| self.has(*number)) {
            let (by, shift) = (number as usize / 64, number % 64);
            for (at, word) in other.words.iter().enumerate() {
                if let Some(sum) = sums.words.get_mut(at + by) {
                    *sum |= word << shift;
                }
                if shift > 0
                    && let Some(sum) = sums.words.get_mut(at + by + 1)
                {
                    *sum |= word >> (64 - shift);
                }
            }
        }
        // What the last word has room for beyond the largest number.
        let last = self.most % 64;
        if last < 63
            && let Some(word) = sums.words.last_mut()
        {
            *word &= (1 << (last + 1)) - 1;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn totals_contain_exactly_the_pairwise_sums(
            most in 0u32..300,
            one in prop::collection::btree_set(0u32..300, 0..40),
            other in prop::collection::btree_set(0u32..300, 0..40),
        ) {
            let of = |numbers: &BTreeSet<u32>| {
                let mut totals = Totals::range(0..=most, most);
                totals.retain(|number| numbers.contains(&number));
                totals
            };
            let sums = of(&one).plus(&of(&other));
            let each = one.iter().flat_map(|a| other.iter().map(move |b| a + b));
            let each: BTreeSet<u32> = each.filter(|sum| *sum <= most).collect();
            for number in 0..400 {
                prop_assert_eq!(sums.has(number), each.contains(&number), "{}", number);
            }
        }
    }
}
