//! What the switch has counted, as plain data: made on the packet loop's thread,
//! read by the thread that serves metrics.

use tailbound_api::{HostState, VmGuarantee, VmName};
use tailbound_dataplane::pacer::GuestStats;
use tailbound_dataplane::{Guarantee, MeterStats, PacerStats};
use tailbound_metrics::Histogram;
use tailbound_units::{Bytes, Nanos};

/// Everything that is counted.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// One entry a port.
    pub links: Vec<LinkSnapshot>,
    /// Stations learned besides the guests.
    pub stations: usize,
    /// What the placement service has promised, if it was ever heard.
    pub promises: Option<Promises>,
    /// Guarantees that the pacer refused.
    pub refusals: u64,
}

/// What the placement service has promised to this host's machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promises {
    /// Of the service's last word.
    pub revision: u64,
    /// Whether this host gets machines.
    pub state: HostState,
    /// Machines that are to be here, and that no guest is.
    pub without_guest: Vec<String>,
}

/// What is counted of one port.
#[derive(Debug, Clone)]
pub struct LinkSnapshot {
    /// The guest's name, or `uplink`.
    pub name: String,
    /// The guest's machine in the placement service, if it has one.
    pub vm: Option<VmName>,
    /// What that machine is promised; `None` where the service knows of none.
    pub promise: Option<VmGuarantee>,
    /// Its interface is there.
    pub up: bool,
    /// Frames and bytes received from the port.
    pub received: (u64, u64),
    /// Frames and bytes sent to the port.
    pub sent: (u64, u64),
    /// Frames dropped, by reason, where there were any: by the port they came
    /// from if they were not let in, by the one they went to otherwise.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames that wait to be sent to the port.
    pub backlog_packets: usize,
    /// Their bytes in the software queue.
    pub backlog_bytes: Bytes,
    /// Packets that were cut on their way to the port.
    pub segmented: u64,
    /// Packets that were marked (ECN) on their way to the port.
    pub marked: u64,
    /// What the meter before the port has done.
    pub meter: MeterStats,
    /// How long the guest's packets waited; empty for the uplink.
    pub sojourns: Vec<Sojourn>,
    /// What the pacer before the port has done; `None` where there is none.
    pub pacing: Option<UplinkPacing>,
    /// What the pacer of the uplink does with the guest's frames; `None` for the
    /// uplink, and where it is not paced.
    pub guarantee: Option<GuestPacing>,
}

/// What a pacer has done.
#[derive(Debug, Clone)]
pub struct UplinkPacing {
    /// Its own counters.
    pub stats: PacerStats,
    /// Voids sent to the port, and the bytes of the wire that they took.
    pub voids: (u64, u64),
    /// The most that a frame was handed over after its stamp.
    pub latest: Nanos,
    /// How late it was asked for what is due.
    pub lateness: Histogram,
}

/// What a pacer does with one guest's frames.
#[derive(Debug, Clone, Copy)]
pub struct GuestPacing {
    /// What they are held to; `None`: best effort.
    pub terms: Option<Guarantee>,
    /// Other terms are wanted, and break a rule.
    pub refused: bool,
    /// The pacer's counters.
    pub stats: GuestStats,
    /// How long its last frame waits for its stamp.
    pub wait: Nanos,
    /// Frames that wait to be offered again.
    pub stalled: usize,
}

/// How long a guest's packets waited.
#[derive(Debug, Clone)]
pub struct Sojourn {
    /// `sent` by the guest, or `received` by it from outside.
    pub direction: &'static str,
    /// `high` or `best_effort`.
    pub class: &'static str,
    /// The times.
    pub histogram: Histogram,
}
