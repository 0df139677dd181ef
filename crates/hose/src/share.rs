//! Max-min fair shares (Bertsekas and Gallager, Data Networks, 6.5.2), in whole
//! bits a second: what is given never exceeds what there is.

/// What one wants of a capacity. Both in bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// What it has use for now.
    pub(super) demand: u64,
    /// The most that it may have, used or not.
    pub(super) limit: u64,
}

/// Divides `capacity`: max-min fair by demand, and what is left then max-min fair
/// up to the limits, so that nobody waits for a rate that none else has use for.
pub(super) fn divide(capacity: u64, claims: &[Claim]) -> Vec<u64> {
    let wanted: Vec<_> = claims
        .iter()
        .map(|claim| claim.demand.min(claim.limit))
        .collect();
    let mut given = fill(capacity, &wanted);
    let left = capacity - given.iter().sum::<u64>();
    if left >= claims.len() as u64 {
        let room: Vec<_> = claims
            .iter()
            .zip(&given)
            .map(|(claim, given)| claim.limit - given)
            .collect();
        for (given, more) in given.iter_mut().zip(fill(left, &room)) {
            *given += more;
        }
    }
    given
}

/// Divides `capacity` max-min fair among those that take at most `limits` each.
fn fill(capacity: u64, limits: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..limits.len()).collect();
    order.sort_unstable_by_key(|index| limits[*index]);
    let mut given = vec![0; limits.len()];
    let mut left = capacity;
    for (done, index) in order.into_iter().enumerate() {
        let equal = left / (limits.len() - done) as u64;
        given[index] = limits[index].min(equal);
        left -= given[index];
    }
    given
}

/// What each could have of `capacity` if it alone wanted all it can get, while the
/// others take at most `limits`: what is offered to it.
pub(super) fn offers(capacity: u64, limits: &[u64]) -> Vec<u64> {
    let count = limits.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|index| limits[*index]);
    // Below[k]: the sum of the k smallest.
    let mut below = Vec::with_capacity(count + 1);
    below.push(0_u128);
    for index in &order {
        below.push(below[below.len() - 1] + u128::from(limits[*index]));
    }
    let mut offers = vec![0; count];
    for (place, index) in order.iter().enumerate() {
        // Of the others in ascending order, the first `k` have all they want:
        // those whose limit is below an equal part of what is left.
        let sum = |k: usize| {
            if k <= place {
                below[k]
            } else {
                below[k + 1] - u128::from(limits[*index])
            }
        };
        let limit = |k: usize| limits[order[if k < place { k } else { k + 1 }]];
        let (mut low, mut high) = (0, count - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            let parts = (count - middle) as u128;
            let satisfied = sum(middle) + u128::from(limit(middle)) * parts <= u128::from(capacity);
            if satisfied {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let left = u128::from(capacity).saturating_sub(sum(low));
        offers[*index] = (left / (count - low) as u128) as u64;
    }
    offers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_one_does_not_want_the_others_share() {
        assert_eq!(fill(90, &[10, 100, 100]), [10, 40, 40]);
        assert_eq!(fill(90, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(fill(0, &[1, 2]), [0, 0]);
    }

    #[test]
    fn what_none_wants_is_lent_to_all() {
        let claim = |demand, limit| Claim { demand, limit };
        assert_eq!(divide(100, &[claim(10, 100), claim(30, 100)]), [40, 60]);
        assert_eq!(divide(100, &[claim(10, 20), claim(30, 100)]), [20, 80]);
        assert_eq!(divide(100, &[claim(500, 100), claim(30, 100)]), [70, 30]);
    }

    proptest! {
        #[test]
        fn an_offer_is_the_share_of_one_without_a_limit(
            capacity in 0_u64..1_000_000,
            limits in prop::collection::vec(0_u64..300_000, 1..20),
        ) {
            let offers = offers(capacity, &limits);
            for index in 0..limits.len() {
                let mut others = limits.clone();
                others[index] = u64::MAX;
                let fair = fill(capacity, &others)[index];
                // Rounded down at another place.
                prop_assert!(fair.abs_diff(offers[index]) <= limits.len() as u64);
            }
        }

        #[test]
        fn shares_are_fair_and_within_what_there_is(
            capacity in 0_u64..1_000_000,
            limits in prop::collection::vec(0_u64..300_000, 1..20),
        ) {
            let given = fill(capacity, &limits);
            prop_assert!(given.iter().sum::<u64>() <= capacity);
            // Whoever gets less than it wants gets no less than any other.
            let most = given.iter().copied().max().unwrap_or(0);
            for (given, limit) in given.iter().zip(&limits) {
                prop_assert!(given == limit || *given + limits.len() as u64 >= most);
            }
        }
    }
}
