//! What hosts measured of how long packets waited at them, beside what is promised.

use serde::{Deserialize, Serialize};
use tailbound_placement::TenantId;

/// The highest number that every reader of JSON takes.
const MOST: u64 = (1 << 53) - 1;

/// How long packets waited, by the percentiles that so many of them carry: at least ten are above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// How many packets.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub packets: u64,
    /// No more than one of a hundred waited longer, in nanoseconds; absent below 1,000 packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub p99_ns: Option<u64>,
    /// No more than one of a thousand waited longer, in nanoseconds; absent below 10,000 packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub p99_9_ns: Option<u64>,
}

impl Tail {
    /// The tail of packets that were counted in buckets: how long each bucket's waited at most, in
    /// ascending order, and how many they are. None without packets.
    pub fn of(buckets: &[(u64, u64)]) -> Option<Self> {
        let packets: u64 = buckets.iter().map(|(_, count)| count).sum();
        let percentile = |one_of: u64| {
            // Ten above it, at least.
            let above = packets / one_of;
            let mut left = packets;
            let mut at_most = buckets.iter().map(|(longest, count)| {
                left -= count;
                (*longest, left)
            });
            (above >= 10).then(|| at_most.find(|(_, left)| *left <= above))?
        };
        (packets > 0).then(|| Self {
            packets,
            p99_ns: percentile(100).map(|(longest, _)| longest),
            p99_9_ns: percentile(1_000).map(|(longest, _)| longest),
        })
    }

    /// The furthest percentile that there is, in percent, and how long it is in nanoseconds.
    pub fn furthest(&self) -> Option<(&'static str, u64)> {
        let furthest = self.p99_9_ns.map(|long| ("99.9", long));
        furthest.or_else(|| Some(("99", self.p99_ns?)))
    }
}

/// What a host measured of packets that something is promised for, lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostMeasured {
    /// Of how long a time this is, in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub window_ns: u64,
    /// How late the host came to what was due to leave it, whosever it was; absent where nothing
    /// left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Tail>,
    /// How long what came for machines of a tenant, and conformed to what is promised, waited for
    /// their cards; tenants for whom something came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<TenantTail>,
}

/// How long what came for machines of a tenant waited on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TenantTail {
    /// The tenant's number.
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = u64, maximum = 9_007_199_254_740_991_u64)
    )]
    pub tenant: TenantId,
    /// How long.
    pub tail: Tail,
}

impl HostMeasured {
    /// Checks that no number is higher than every reader of JSON takes. Returns what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tails = self.late.iter();
        let tails = tails.chain(self.waited.iter().map(|of| &of.tail));
        let numbers = tails.flat_map(|tail| [Some(tail.packets), tail.p99_ns, tail.p99_9_ns]);
        let tenants = self.waited.iter().map(|of| Some(of.tenant.0));
        let all = numbers.chain(tenants).chain([Some(self.window_ns)]);
        match all.flatten().find(|number| *number > MOST) {
            Some(number) => Err(format!("measured: {number} is above {MOST}")),
            None => Ok(()),
        }
    }
}

/// What a tenant's hosts measured, each where it is worst.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Measured {
    /// How late a host came to what was due to leave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<WorstTail>,
    /// How long what came for the tenant's machines waited for their cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<WorstTail>,
}

/// The longest tail of those of several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorstTail {
    /// The host.
    pub host: String,
    /// Of how long a time, in nanoseconds.
    pub window_ns: u64,
    /// How long packets waited.
    pub tail: Tail,
}

impl Measured {
    /// What these hosts of a tenant measured; None where none did.
    pub fn of(tenant: TenantId, hosts: &[(&str, &HostMeasured)]) -> Option<Self> {
        let worst = |tail: fn(&HostMeasured, TenantId) -> Option<Tail>| {
            let tails = hosts.iter().filter_map(|(host, measured)| {
                Some((*host, measured.window_ns, tail(measured, tenant)?))
            });
            // What 99 % do not exceed is no longer than what 99.9 % do not: of two hosts the one is
            // worse whose furthest percentile is longer, whichever that is.
            let worst = tails
                .max_by_key(|(_, _, tail)| (tail.furthest().map(|(_, long)| long), tail.packets));
            worst.map(|(host, window_ns, tail)| WorstTail {
                host: host.to_owned(),
                window_ns,
                tail,
            })
        };
        let found = Self {
            sending: worst(|measured, _| measured.late),
            receiving: worst(|measured, tenant| {
                let mut waited = measured.waited.iter();
                Some(waited.find(|of| of.tenant == tenant)?.tail)
            }),
        };
        (found != Self::default()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_bucket_that_leaves_so_few_above_and_ten_at_least() {
        assert_eq!(Tail::of(&[]), None);
        assert_eq!(Tail::of(&[(5, 0)]), None);
        let few = Tail::of(&[(5, 999)]).unwrap();
        assert_eq!((few.packets, few.furthest()), (999, None));
        // Ten of a thousand above 5: exactly one of a hundred.
        let some = Tail::of(&[(5, 990), (9, 9), (90, 1)]).unwrap();
        assert_eq!((some.p99_ns, some.p99_9_ns), (Some(5), None));
        assert_eq!(some.furthest(), Some(("99", 5)));
        let some = Tail::of(&[(5, 989), (9, 10), (90, 1)]).unwrap();
        assert_eq!(some.p99_ns, Some(9));
        let many = Tail::of(&[(5, 9_989), (9, 1), (90, 10)]).unwrap();
        assert_eq!(many.furthest(), Some(("99.9", 9)));
    }

    #[test]
    fn a_tenant_is_told_of_its_worst_host_alone() {
        let tail = |packets, p99_9_ns| Tail {
            packets,
            p99_ns: Some(1),
            p99_9_ns,
        };
        let host = |late, waited: &[(u64, Tail)]| HostMeasured {
            window_ns: 60,
            late,
            waited: waited
                .iter()
                .map(|(id, tail)| TenantTail {
                    tenant: TenantId(*id),
                    tail: *tail,
                })
                .collect(),
        };
        let a = host(Some(tail(9, Some(7))), &[(1, tail(9, Some(3)))]);
        let b = host(
            Some(tail(99, None)),
            &[(1, tail(9, Some(4))), (2, tail(9, Some(9)))],
        );
        let hosts = [("a", &a), ("b", &b)];
        let found = Measured::of(TenantId(1), &hosts).unwrap();
        let worst = |worst: Option<WorstTail>| worst.map(|it| (it.host, it.tail.p99_9_ns));
        assert_eq!(worst(found.sending), Some(("a".to_owned(), Some(7))));
        assert_eq!(worst(found.receiving), Some(("b".to_owned(), Some(4))));
        assert_eq!(Measured::of(TenantId(1), &[]), None);
        // Few packets whose 99 % are long already are worse than many whose 99.9 % are short.
        let few = Tail {
            packets: 1_000,
            p99_ns: Some(8),
            p99_9_ns: None,
        };
        let c = host(Some(few), &[]);
        let found = Measured::of(TenantId(1), &[("a", &a), ("c", &c)]).unwrap();
        assert_eq!(found.sending.unwrap().host, "c");
    }
}
