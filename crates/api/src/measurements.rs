//! Waiting times of packets that hosts measured.

use serde::{Deserialize, Serialize};
use tailbound_placement::TenantId;

/// The highest integer that every JSON parser reads exactly.
const MAX_JSON_INTEGER: u64 = (1 << 53) - 1;

/// Percentiles of waiting times. A percentile is present only if at least ten packets are above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// The number of packets.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub packets: u64,
    /// The 99th percentile in nanoseconds; absent below 1,000 packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile in nanoseconds; absent below 10,000 packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub p99_9_ns: Option<u64>,
}

impl Tail {
    /// Returns the percentiles of a histogram: pairs of the upper edge of a bucket, in ascending
    /// order, and its count. Returns `None` without packets.
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

    /// Returns the highest percentile that is present, in percent, and its value in nanoseconds.
    pub fn furthest(&self) -> Option<(&'static str, u64)> {
        let furthest = self.p99_9_ns.map(|long| ("99.9", long));
        furthest.or_else(|| Some(("99", self.p99_ns?)))
    }
}

/// Recent measurements of a host for packets with guarantees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostMeasured {
    /// The length of the measured interval in nanoseconds.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub window_ns: u64,
    /// The lateness of all frames that left the host; absent if none left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Tail>,
    /// For each tenant that received frames: the wait of its conforming frames for the machines'
    /// NICs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<TenantTail>,
}

/// The wait of frames to the machines of a tenant on a host.
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
    /// The waiting times.
    pub tail: Tail,
}

impl HostMeasured {
    /// Checks that every JSON parser reads the numbers exactly. Returns the error.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tails = self.late.iter();
        let tails = tails.chain(self.waited.iter().map(|of| &of.tail));
        let numbers = tails.flat_map(|tail| [Some(tail.packets), tail.p99_ns, tail.p99_9_ns]);
        let tenants = self.waited.iter().map(|of| Some(of.tenant.0));
        let all = numbers.chain(tenants).chain([Some(self.window_ns)]);
        match all.flatten().find(|number| *number > MAX_JSON_INTEGER) {
            Some(number) => Err(format!("measured: {number} is above {MAX_JSON_INTEGER}")),
            None => Ok(()),
        }
    }
}

/// The worst measurements of a tenant's hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Measured))]
pub struct WorstMeasurements {
    /// The lateness of frames that left a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<WorstTail>,
    /// The wait of frames for the NICs of the tenant's machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<WorstTail>,
}

/// The worst waiting times among several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorstTail {
    /// The host.
    pub host: String,
    /// The length of the measured interval in nanoseconds.
    pub window_ns: u64,
    /// The waiting times.
    pub tail: Tail,
}

impl WorstMeasurements {
    /// Returns the worst measurements of these hosts of a tenant; `None` without any.
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
    fn a_percentile_requires_ten_packets_above_it() {
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
    fn a_tenant_sees_only_its_worst_hosts_measurements() {
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
        let found = WorstMeasurements::of(TenantId(1), &hosts).unwrap();
        let worst = |worst: Option<WorstTail>| worst.map(|it| (it.host, it.tail.p99_9_ns));
        assert_eq!(worst(found.sending), Some(("a".to_owned(), Some(7))));
        assert_eq!(worst(found.receiving), Some(("b".to_owned(), Some(4))));
        assert_eq!(WorstMeasurements::of(TenantId(1), &[]), None);
        // Few packets whose 99 % are long already are worse than many whose 99.9 % are short.
        let few = Tail {
            packets: 1_000,
            p99_ns: Some(8),
            p99_9_ns: None,
        };
        let c = host(Some(few), &[]);
        let found = WorstMeasurements::of(TenantId(1), &[("a", &a), ("c", &c)]).unwrap();
        assert_eq!(found.sending.unwrap().host, "c");
    }
}
