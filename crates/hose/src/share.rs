//! Max-min fair shares (Bertsekas and Gallager, Data Networks, 6.5.2), in whole
//! bits a second: the shares never sum up to more than the capacity.

use tailbound_units::{Bytes, Rate};

/// A quantity that is divided.
pub(crate) trait Quantity: Copy + Ord {
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

impl Quantity for Rate {
    fn of(number: u64) -> Self {
        Self(number)
    }
    fn number(self) -> u64 {
        self.0
    }
}

impl Quantity for Bytes {
    fn of(number: u64) -> Self {
        Self(number)
    }
    fn number(self) -> u64 {
        self.0
    }
}

/// Claim to a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Current demand.
    pub(crate) demand: Rate,
    /// The most that it may have, used or not.
    pub(crate) limit: Rate,
}

/// Computes shares. It keeps its buffers, so that a division allocates nothing
/// once it has had as many claims.
#[derive(Debug, Default)]
pub(crate) struct Divider {
    order: Vec<usize>,
    limits: Vec<Rate>,
    spare: Vec<Rate>,
    sums: Vec<u128>,
}

impl Divider {
    /// Divides `capacity` among `claims`: max-min fair by demand, and the rest then max-min fair up
    /// to the limits, so that no claimant waits for a rate without another use. `shares` becomes
    /// one rate for each claim.
    pub(crate) fn divide(&mut self, capacity: Rate, claims: &[Claim], shares: &mut Vec<Rate>) {
        let wanted = claims.iter().map(|claim| claim.demand.min(claim.limit));
        self.limits.clear();
        self.limits.extend(wanted);
        fill(capacity, &self.limits, &mut self.order, shares);
        let left = capacity - shares.iter().copied().sum();
        if left.0 < claims.len() as u64 {
            return;
        }
        for (limit, (claim, share)) in self.limits.iter_mut().zip(claims.iter().zip(&*shares)) {
            *limit = claim.limit - *share;
        }
        fill(left, &self.limits, &mut self.order, &mut self.spare);
        for (share, spare) in shares.iter_mut().zip(&self.spare) {
            *share += *spare;
        }
        debug_assert!(
            shares.iter().map(|share| u128::from(share.0)).sum::<u128>() <= u128::from(capacity.0)
        );
    }

    /// Computes for each claim what it could have of `capacity` if it alone wanted
    /// all that it can get, while the others take what they want and may.
    /// `offers` becomes one rate a claim.
    pub(crate) fn offer(&mut self, capacity: Rate, claims: &[Claim], offers: &mut Vec<Rate>) {
        let Self {
            order,
            limits,
            sums,
            ..
        } = self;
        let wanted = claims.iter().map(|claim| claim.demand.min(claim.limit));
        limits.clear();
        limits.extend(wanted);
        sort(limits, order);
        let count = limits.len();
        // sums[k]: the sum of the k smallest.
        sums.clear();
        sums.push(0);
        for index in &*order {
            sums.push(sums[sums.len() - 1] + u128::from(limits[*index].0));
        }
        offers.clear();
        offers.resize(count, Rate::ZERO);
        let capacity = u128::from(capacity.0);
        for (place, index) in order.iter().enumerate() {
            // Of the others in ascending order, the first `k` have all they want:
            // those whose limit is below an equal part of what is left.
            let sum = |k: usize| {
                if k <= place {
                    sums[k]
                } else {
                    sums[k + 1] - u128::from(limits[*index].0)
                }
            };
            let limit = |k: usize| u128::from(limits[order[if k < place { k } else { k + 1 }]].0);
            let (mut low, mut high) = (0, count - 1);
            while low < high {
                let middle = usize::midpoint(low, high);
                let parts = (count - middle) as u128;
                if sum(middle) + limit(middle) * parts <= capacity {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            let left = capacity.saturating_sub(sum(low));
            offers[*index] = Rate((left / (count - low) as u128) as u64);
        }
    }
}

/// Sorts the indices of `limits` into `order`, smallest limit first.
fn sort<Q: Ord>(limits: &[Q], order: &mut Vec<usize>) {
    order.clear();
    order.extend(0..limits.len());
    order.sort_unstable_by(|one, other| limits[*one].cmp(&limits[*other]));
}

/// Divides `capacity` max-min fair among those that take at most `limits` each.
pub(crate) fn fill<Q: Quantity>(
    capacity: Q,
    limits: &[Q],
    order: &mut Vec<usize>,
    shares: &mut Vec<Q>,
) {
    sort(limits, order);
    shares.clear();
    shares.resize(limits.len(), Q::of(0));
    let mut left = capacity.number();
    for (done, index) in order.iter().enumerate() {
        let equal = Q::of(left / (limits.len() - done) as u64);
        shares[*index] = limits[*index].min(equal);
        left -= shares[*index].number();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(capacity: u64, limits: &[u64]) -> Vec<u64> {
        let limits: Vec<_> = limits.iter().copied().map(Rate).collect();
        let mut shares = Vec::new();
        fill(Rate(capacity), &limits, &mut Vec::new(), &mut shares);
        shares.into_iter().map(|rate| rate.0).collect()
    }

    /// Makes claims of pairs of a demand and a limit.
    fn claims(of: &[(u64, u64)]) -> Vec<Claim> {
        let claim = |(demand, limit): &_| Claim {
            demand: Rate(*demand),
            limit: Rate(*limit),
        };
        of.iter().map(claim).collect()
    }

    fn divided(capacity: u64, of: &[(u64, u64)]) -> Vec<u64> {
        let mut shares = Vec::new();
        Divider::default().divide(Rate(capacity), &claims(of), &mut shares);
        shares.into_iter().map(|rate| rate.0).collect()
    }

    #[test]
    fn bandwidth_that_one_sender_does_not_demand_goes_to_the_others() {
        assert_eq!(filled(90, &[10, 100, 100]), [10, 40, 40]);
        assert_eq!(filled(90, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(filled(0, &[1, 2]), [0, 0]);
    }

    #[test]
    fn bandwidth_that_no_sender_demands_is_lent_to_all() {
        assert_eq!(divided(100, &[(10, 100), (30, 100)]), [40, 60]);
        assert_eq!(divided(100, &[(10, 20), (30, 100)]), [20, 80]);
        assert_eq!(divided(100, &[(500, 100), (30, 100)]), [70, 30]);
        // As long as each gets a bit a second.
        assert_eq!(divided(12, &[(5, 10), (5, 10)]), [6, 6]);
        assert_eq!(divided(11, &[(5, 10), (5, 10)]), [5, 5]);
    }

    proptest! {
        #[test]
        fn an_offer_is_the_share_of_one_without_a_limit(
            capacity in 0_u64..1_000_000,
            limits in prop::collection::vec(0_u64..300_000, 1..20),
        ) {
            let mut offers = Vec::new();
            let of: Vec<_> = limits.iter().map(|limit| (*limit, *limit)).collect();
            Divider::default().offer(Rate(capacity), &claims(&of), &mut offers);
            for index in 0..limits.len() {
                let mut others = limits.clone();
                others[index] = u64::MAX;
                let fair = filled(capacity, &others)[index];
                // Rounded down at another place.
                prop_assert!(fair.abs_diff(offers[index].0) <= limits.len() as u64);
            }
        }

        #[test]
        fn shares_are_fair_and_within_the_capacity(
            capacity in 0_u64..1_000_000,
            limits in prop::collection::vec(0_u64..300_000, 1..20),
        ) {
            let shares = filled(capacity, &limits);
            prop_assert!(shares.iter().sum::<u64>() <= capacity);
            // Whoever gets less than it wants gets no less than any other.
            let most = shares.iter().copied().max().unwrap_or(0);
            for (share, limit) in shares.iter().zip(&limits) {
                prop_assert!(share == limit || *share + limits.len() as u64 >= most);
            }
        }
    }
}
