//! Loads that show whether a guarantee holds: messages, frames that a guest composes itself, and
//! their measurements.

use super::Manner;
use serde::Deserialize;
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// Messages of several UDP datagrams, each from one guest to another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// Name, for variants.
    pub(crate) name: Name,
    /// The senders.
    pub(crate) from: Vec<Name>,
    /// The receivers: the first sender's, the second's, and so on in turn.
    pub(crate) to: Vec<Name>,
    /// Size of a message on the wire, all overhead included.
    pub(crate) size: Bytes,
    /// Interval in which all senders start a message together, or
    pub(crate) every: Option<Nanos>,
    /// the mean time between two messages of a sender at random times.
    pub(crate) mean_gap: Option<Nanos>,
    /// Series of latencies: from the scheduled start of a message to the arrival of its last
    /// datagram.
    pub(crate) series: String,
    /// Series of times from ring to ring, if senders and receivers are VMs: from taking a datagram
    /// out of the sender's ring to putting it into the receiver's. The slowest datagram counts for
    /// its message.
    pub(crate) ring: Option<String>,
    /// Longest CPU time of a message in a receiver with a reservation. The series' bound then
    /// includes the wait of the receiver's vCPU, and later messages are counted.
    pub(crate) cpu: Option<Nanos>,
    /// Series of the times in which a vCPU of sender or receiver was runnable but did not run while
    /// a message was in transit.
    pub(crate) vcpu_wait: Option<String>,
}

impl Message {
    /// Names of the values that it measures beside its series: incomplete messages, and, if `cpu`
    /// is known, messages beyond their bound, without and with those that this computer delayed.
    pub(crate) const VALUES: &'static [&'static str] =
        &["messages_lost", "over_bound", "over_bound_by_machine"];
}

/// TCP transfers of a fixed size to a guest, each on a connection of its own that was opened
/// before.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transfer {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Size of each transfer.
    pub(crate) size: Bytes,
    /// Mean time between two transfers; a transfer waits for the answer to the previous one.
    pub(crate) mean_gap: Nanos,
    /// Sender's congestion control, by name.
    pub(crate) congestion: String,
    /// Initial window of its connections, in segments.
    pub(crate) initial_window: u32,
    /// Series of durations at the sender: until the answer of the receiver's application.
    pub(crate) series: String,
    /// Series of durations at the receiver: from its first byte to its last.
    pub(crate) received: String,
    /// Series of the longest times in a transfer without a byte for the receiver; by default they
    /// are not measured.
    pub(crate) pause: Option<String>,
    /// The sender closes the connection after its last byte, and the receiver answers to that; the
    /// default is false.
    #[serde(default)]
    pub(crate) closes: bool,
    /// The sender's kernel leaves segmentation to its NIC; true.
    #[serde(default = "yes")]
    pub(crate) offload: bool,
}

const fn yes() -> bool {
    true
}

/// A stream of RTP whose packets are computed during the stream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rtp {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Bytes of the stream in each packet.
    pub(crate) payload: Bytes,
    /// Time between two packets.
    pub(crate) every: Nanos,
    /// CPU time of a packet,
    pub(crate) compute: Nanos,
    /// divided into this number of pieces over the time between two packets.
    pub(crate) pieces: u32,
    /// Interval in which an idle sender runs again, if this is not its own choice.
    pub(crate) reactivated: Option<Nanos>,
    /// Series of gaps between arrivals ("delta").
    pub(crate) series: String,
}

impl Rtp {
    /// Names of the values that it measures beside its series: the interarrival jitter (RFC 3550),
    /// without and with samples that this computer disturbed.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "jitter_mean",
        "jitter_p99",
        "jitter_max",
        "jitter_mean_of_all",
    ];
}

/// A stream of UDP by iperf3, whose receiver reports the jitter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Iperf {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Rate of the stream.
    pub(crate) rate: Rate,
    /// Size of each datagram, without headers.
    pub(crate) payload: Bytes,
    /// Value of the mean jitter.
    pub(crate) value: String,
}

/// Frames that a guest composes itself and sends at its full speed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flood {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Size of an IP packet. The host segments packets above 1500 B.
    pub(crate) packet: Bytes,
    /// Peculiarity of the frames.
    #[serde(default)]
    pub(crate) manner: Manner,
    /// Value of the frames that the guest's interface accepted per second.
    pub(crate) value: String,
}

/// A measurement of a guest's received traffic from another guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meter {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Expected rate on the wire.
    pub(crate) rate: Rate,
    /// Series of pauses between arrivals.
    pub(crate) series: String,
}

impl Meter {
    /// Names of the values that it measures beside its series: the mean rate over the seconds of
    /// the measured time; the largest deviation of a second from `rate` in percent, among the
    /// seconds with CPU time for the hosts' daemons, and among all seconds; and the number of
    /// seconds that are not judged.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "rate_bit_s",
        "rate_error",
        "rate_error_of_all",
        "seconds_without_cpu",
    ];
}

/// Watches the effect of the switch's port towards a host on messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    /// Name, for variants.
    pub(crate) name: Name,
    /// Host behind the port.
    pub(crate) host: Name,
    /// Series of each datagram's wait in the port.
    pub(crate) series: String,
}

impl Watch {
    /// Names of the values that it measures beside its series: rounds of messages, rounds with and
    /// without loss in the port, lost frames, the port's own counter of drops, and the largest
    /// backlog in bytes on the wire.
    pub(crate) const VALUES: &'static [&'static str] = &[
        "rounds",
        "rounds_with_loss",
        "rounds_without_loss",
        "frames_lost",
        "port_drops",
        "backlog_peak",
    ];
}
