//! How long a message takes from one machine to another, with the CPU at both ends.

use serde::{Deserialize, Serialize};
use tailbound_placement::CpuLatency;
use tailbound_units::{Bytes, Nanos};

/// How long a message takes at most between two machines of one tenant, part by part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageBound {
    /// M, in bytes on the wire.
    pub size: Bytes,
    /// Its CPU time at the sender, with all waiting for it. All of it is zero where it needs none;
    /// absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<CpuLatency>,
    /// How much of it is sent at Bmax, the burst rate: M up to S, and S above.
    pub burst: Bytes,
    /// How long that takes.
    pub at_burst_rate: Nanos,
    /// How long the rest takes at B.
    pub at_bandwidth: Nanos,
    /// d: the promised delay, or where none is the sum of the queue capacities.
    pub delay: Nanos,
    /// Its CPU time at the receiver, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<CpuLatency>,
    /// The sum of all parts; absent where nothing bounds one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Nanos>,
    /// Why nothing bounds it, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbounded: Option<String>,
}
