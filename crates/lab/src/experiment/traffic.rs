//! The loads that show whether a promise is kept: messages, frames of a guest's
//! own making, and who measures them.

use super::Manner;
use serde::Deserialize;
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// Messages of several UDP datagrams, each from one guest to another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// What variants call it.
    pub name: Name,
    /// The senders.
    pub from: Vec<Name>,
    /// The receivers: the first sender's, the second's, and so on in turn.
    pub to: Vec<Name>,
    /// The size of a message on the wire, all overhead included.
    pub size: Bytes,
    /// All senders start a message at once and again after each such time, or
    pub every: Option<Nanos>,
    /// each at random moments with this mean time between two.
    pub mean_gap: Option<Nanos>,
    /// The series of latencies: from when a message was to start to the arrival of
    /// its last datagram.
    pub series: String,
    /// Where senders and receivers are machines: the series of times from ring to ring,
    /// from the moment a datagram was taken from its sender's to that at which it was in its
    /// receiver's. The slowest one counts for its message.
    pub ring: Option<String>,
    /// What CPU time a message takes of its receiver at most, where that has a reservation: the
    /// bound of the series then has what its vCPU may wait, and what took longer is counted.
    pub cpu: Option<Nanos>,
    /// The series of how long the vCPUs of sender and receiver could have run and did not
    /// while a message was on its way.
    pub vcpu_wait: Option<String>,
}

impl Message {
    /// What it measures beside its series: messages of which a part did not arrive, and, where
    /// `cpu` is known, those beyond their bound, without and with the machine's doing.
    pub(crate) const VALUES: &'static [&'static str] =
        &["messages_lost", "over_bound", "over_bound_by_machine"];
}

/// Transfers of some bytes over TCP to a guest, each on a connection of its own that was open
/// before.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// The size of each.
    pub size: Bytes,
    /// The mean time between two; one waits for the answer to that before it.
    pub mean_gap: Nanos,
    /// The sender's congestion control, by name.
    pub congestion: String,
    /// The window that its connections begin with, in segments.
    pub initial_window: u32,
    /// The series of what the sender sees: until the receiver's application has answered.
    pub series: String,
    /// The series of what the receiver sees: from its first byte to its last.
    pub received: String,
    /// The series of the longest time in a transfer without a byte for the receiver; none by
    /// default.
    pub pause: Option<String>,
    /// The sender closes right behind its last byte, and the receiver answers that; false by
    /// default.
    #[serde(default)]
    pub closes: bool,
    /// The sender's kernel leaves it to its card to cut segments; true by default.
    #[serde(default = "yes")]
    pub offload: bool,
}

const fn yes() -> bool {
    true
}

/// A stream of RTP that its sender computes as it sends it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtp {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// What of the stream is in each packet.
    pub payload: Bytes,
    /// The time between two packets.
    pub every: Nanos,
    /// The CPU time that a packet takes,
    pub compute: Nanos,
    /// in so many pieces over the time between two.
    pub pieces: u32,
    /// How long after it has nothing to do the sender runs again, where that is not when it wants.
    pub reactivated: Option<Nanos>,
    /// The series of gaps between arrivals ("delta").
    pub series: String,
}

impl Rtp {
    /// What it measures beside its series: the interarrival jitter (RFC 3550), without what this
    /// machine spoiled and with it.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "jitter_mean",
        "jitter_p99",
        "jitter_max",
        "jitter_mean_of_all",
    ];
}

/// A stream of UDP by iperf3, whose receiver says its jitter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iperf {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// How much is sent.
    pub rate: Rate,
    /// The size of each datagram, without headers.
    pub payload: Bytes,
    /// The value of the mean jitter.
    pub value: String,
}

/// Frames that a guest makes itself and sends as fast as it can.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// The size of an IP packet. One above 1500 B is left to be segmented.
    pub packet: Bytes,
    /// What is odd about the frames.
    #[serde(default)]
    pub manner: Manner,
    /// The value of frames handed over to the guest's interface in a second.
    pub value: String,
}

/// Measures what one guest receives from another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// What variants call it.
    pub name: Name,
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// What should arrive, on the wire.
    pub rate: Rate,
    /// The series of pauses between arrivals.
    pub series: String,
}

impl Meter {
    /// What it measures beside its series: the mean rate over the seconds of the measured
    /// time, by how much the worst of those missed in which the hosts' daemons had their
    /// CPU, and of all, in percent, and how many seconds it does not judge.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "rate_bit_s",
        "rate_error",
        "rate_error_of_all",
        "seconds_without_cpu",
    ];
}

/// Watches what the switch's port towards a host does to messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// What variants call it.
    pub name: Name,
    /// The host behind the port.
    pub host: Name,
    /// The series of what each datagram waited in the port.
    pub series: String,
}

impl Watch {
    /// What it measures beside its series: rounds of messages, those in which
    /// the port lost something and those in which it did not, frames that it lost, what its own counter says
    /// of that, and the most that it held, in bytes on the wire.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "rounds",
        "rounds_with_loss",
        "rounds_without_loss",
        "frames_lost",
        "port_drops",
        "backlog_peak",
    ];
}
