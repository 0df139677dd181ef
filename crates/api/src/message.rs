//! Latency of a message between two machines, with the CPU at both ends.

use serde::{Deserialize, Serialize};
use tailbound_placement::CpuLatency;
use tailbound_units::{Bytes, Nanos};

/// The upper bound of a message's latency between two machines of one tenant, part by part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageBound {
    /// The size M, in bytes on the wire.
    pub size: Bytes,
    /// The CPU time at the sender with all waits for it; zero without a demand, absent if
    /// unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<CpuLatency>,
    /// The bytes that are sent at the burst rate Bmax: M up to S, and S above. With an inward burst
    /// S is at most the part of it that each sender has.
    pub burst: Bytes,
    /// The duration of that part.
    pub at_burst_rate: Nanos,
    /// The duration of the rest at B. If the inward burst limits the part before, it is B/(N-1),
    /// because every machine of the tenant may send to the receiver.
    pub at_bandwidth: Nanos,
    /// The duration of the whole message at B/(N-1), in place of the two parts before: after the
    /// sender used its bursts for other machines of the receiver's host, rack or pod, while every
    /// machine of the tenant sends there. Absent if each receiver has a burst of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_bursts: Option<Nanos>,
    /// The guaranteed delay d, or without one the sum of the queue capacities.
    pub delay: Nanos,
    /// The CPU time at the receiver with all waits for it; zero without a demand, absent if
    /// unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<CpuLatency>,
    /// The sum of all parts; absent if one of them is unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Nanos>,
    /// The reason why a part is unbounded, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbounded: Option<String>,
}
