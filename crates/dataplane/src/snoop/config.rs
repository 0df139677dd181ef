//! Configuration of early acknowledgement.

use serde::{Deserialize, Serialize};
use tailbound_units::{Bytes, Nanos};

/// Acknowledged data: `"retaining"`, the default, keeps a copy in the host; `"strict"` acknowledges
/// only data in the guest's ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnoopMode {
    /// The host retains acknowledged data until the guest acknowledges it.
    #[default]
    Retaining,
    /// The host acknowledges data within the guest's window, once it is in the ring, and retains
    /// nothing. Data that the guest's stack drops behind its ring is lost.
    Strict,
}

/// Early acknowledgement of TCP for a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnoopConfig {
    /// Acknowledged data: `"retaining"`, the default, keeps a copy in the host; `"strict"`
    /// acknowledges only data in the guest's ring.
    pub mode: SnoopMode,
    /// Largest advertised window; 1 MiB.
    pub window: Bytes,
    /// Memory limit per connection; 2 MiB.
    pub flow: Bytes,
    /// Memory limit of the guest; 16 MiB.
    pub guest: Bytes,
    /// Maximum of tracked connections; 65,536. A full table evicts a long idle one without retained data.
    pub flows: usize,
}

impl SnoopConfig {
    /// Maximum of [`SnoopConfig::flows`].
    pub const MOST_FLOWS: usize = 1 << 22;
    /// Connections that a CPU's second cache has room for, half a megabyte.
    pub const CACHED: usize = 2_800;
    /// The first pause before a retransmission to the guest (as Linux's `TCP_RTO_MIN`); each later
    /// pause is twice as long.
    pub const FIRST_RESEND: Nanos = Nanos::from_millis(200);
    /// The longest pause (as Linux's `TCP_RTO_MAX`).
    pub const LAST_RESEND: Nanos = Nanos::from_secs(120);
    /// Maximum number of retransmissions without progress while the guest runs; then the connection
    /// is reset (as Linux's `tcp_retries2`).
    pub const RESENDS: u8 = 15;
    /// Time for which a connection remains known after both ends have closed.
    pub const LINGER: Nanos = Nanos::from_secs(60);
    /// Minimum time between repeated acknowledgements to a peer.
    pub const REPEAT: Nanos = Nanos::from_millis(10);

    /// Returns the mistake in the configuration; `None` without one.
    pub fn mistake(&self) -> Option<&'static str> {
        if !(1..=Self::MOST_FLOWS).contains(&self.flows) {
            return Some("`flows` must be from 1 to 4194304");
        }
        if !(4096..=1 << 30).contains(&self.window.0) {
            return Some("`window` must be from 4KiB to 1GiB");
        }
        if self.flow > self.guest {
            return Some("`flow` is more than `guest`, of which it is a part");
        }
        if self.guest.0 > 1 << 31 {
            return Some("`guest` must be at most 2GiB");
        }
        None
    }
}

impl Default for SnoopConfig {
    fn default() -> Self {
        Self {
            mode: SnoopMode::Retaining,
            window: Bytes(1 << 20),
            flow: Bytes(2 << 20),
            guest: Bytes(16 << 20),
            flows: 65_536,
        }
    }
}
