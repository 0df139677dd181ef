//! Loads that show whether a guarantee holds: messages, frames that a guest composes itself, and
//! their measurements.

use super::Manner;
use serde::Deserialize;
use tailbound_experiment::Name;
use tailbound_units::{Bytes, Nanos, Rate};

/// UDP messages of several datagrams.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// Name.
    pub(crate) name: Name,
    /// Senders.
    pub(crate) from: Vec<Name>,
    /// Receivers, one per sender in turn.
    pub(crate) to: Vec<Name>,
    /// Size of a message on the wire, with all overhead.
    pub(crate) size: Bytes,
    /// Interval at which all senders start together; or `mean_gap`.
    pub(crate) every: Option<Nanos>,
    /// Mean random time between messages of a sender.
    pub(crate) mean_gap: Option<Nanos>,
    /// Series of latencies, from the scheduled start to the last datagram's arrival.
    pub(crate) series: String,
    /// Series of times from the sender's ring to the receiver's, between VMs. A message counts with
    /// its slowest datagram.
    pub(crate) ring: Option<String>,
    /// Longest CPU time of a message in a receiver with a reservation, whose wait for its vCPU is
    /// then part of the bound.
    pub(crate) cpu: Option<Nanos>,
    /// Series of the times in which a vCPU of sender or receiver was runnable and did not run, for
    /// a message in transit.
    pub(crate) vcpu_wait: Option<String>,
}

impl Message {
    /// Names of the values that it measures beside its series: incomplete messages, and, if `cpu`
    /// is known, messages beyond their bound, without and with those that this computer delayed.
    pub(crate) const VALUES: &'static [&'static str] =
        &["messages_lost", "over_bound", "over_bound_by_machine"];
}

/// TCP transfers, each on its own connection, opened before.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transfer {
    /// Name.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Size.
    pub(crate) size: Bytes,
    /// Mean time between transfers; each waits for the answer to the previous one.
    pub(crate) mean_gap: Nanos,
    /// Sender's congestion control.
    pub(crate) congestion: String,
    /// Initial window, in segments.
    pub(crate) initial_window: u32,
    /// Series of durations at the sender, up to the answer of the receiver's application.
    pub(crate) series: String,
    /// Series of durations at the receiver, first to last byte.
    pub(crate) received: String,
    /// Series of the longest pauses of a transfer at the receiver; not measured.
    pub(crate) pause: Option<String>,
    /// The sender closes after its last byte, and the receiver answers to that; false.
    #[serde(default)]
    pub(crate) closes: bool,
    /// Segmentation by the sender's NIC; true.
    #[serde(default = "yes")]
    pub(crate) offload: bool,
}

const fn yes() -> bool {
    true
}

/// An RTP stream, computed as it is sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rtp {
    /// Name.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Payload of each packet.
    pub(crate) payload: Bytes,
    /// Time between packets.
    pub(crate) every: Nanos,
    /// CPU time of a packet.
    pub(crate) compute: Nanos,
    /// Pieces of this time, spread over the time between packets.
    pub(crate) pieces: u32,
    /// Interval at which an idle sender is forced to run.
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

/// A UDP stream of iperf3. The receiver reports the jitter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Iperf {
    /// Name.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Rate.
    pub(crate) rate: Rate,
    /// Size of a datagram, without headers.
    pub(crate) payload: Bytes,
    /// Value of the mean jitter.
    pub(crate) value: String,
}

/// Frames that guests compose, at full speed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flood {
    /// Name.
    pub(crate) name: Name,
    /// Sender.
    pub(crate) from: Name,
    /// Receiver.
    pub(crate) to: Name,
    /// Size of an IP packet. Above 1500 B the host segments.
    pub(crate) packet: Bytes,
    /// Difference from honest frames.
    #[serde(default)]
    pub(crate) manner: Manner,
    /// Value of the accepted frames per second.
    pub(crate) value: String,
}

/// A measurement of received traffic from another guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meter {
    /// Name.
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

/// A watched port of the switch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    /// Name.
    pub(crate) name: Name,
    /// Host behind the port.
    pub(crate) host: Name,
    /// Series of datagrams' waits in the port.
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
