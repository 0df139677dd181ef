//! Transport of messages in an experiment file.

use super::packet::Protocol;
use crate::tcp::{Congestion, Recovery, SlowStart, TcpConfig};
use serde::Deserialize;
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Nanos};

/// Transport of messages; the defaults are those of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of one TOML table")]
pub struct Transport {
    /// TCP or UDP, which uses no other key.
    pub protocol: Protocol,
    /// Congestion control.
    pub congestion: Congestion,
    /// End of CUBIC's slow start, with SACK.
    pub slow_start: SlowStart,
    /// Repairs losses by SACK, RACK-TLP and PRR.
    pub sack: bool,
    /// Initial window, in segments of 1,448 B.
    pub initial_window: u32,
    /// Shortest retransmission timeout.
    pub least_timeout: Nanos,
    /// Longest wait of an acknowledgement for a second segment.
    pub delayed_ack: Nanos,
    /// Immediately acknowledged segments of a new connection; later every second one.
    pub quick_acks: u32,
    /// Receiver's window from the start.
    pub receive_window: Bytes,
    /// Window restarts after an idle timeout.
    pub restarts: bool,
    /// Probes the last segment before a timeout (TLP), with SACK.
    pub probes: bool,
    /// Repairs losses and takes marks in the way of ns-3 3.37, with SACK: for comparisons with it.
    pub like_ns3: bool,
}

impl Default for Transport {
    fn default() -> Self {
        let linux = TcpConfig::RACK;
        Self {
            protocol: Protocol::Tcp,
            congestion: linux.congestion,
            slow_start: linux.slow_start,
            sack: true,
            initial_window: linux.initial_window,
            least_timeout: linux.least_timeout,
            delayed_ack: linux.delayed_ack,
            quick_acks: linux.quick_acks,
            receive_window: Bytes(linux.receive_window.into()),
            restarts: linux.restarts,
            probes: linux.probes,
            like_ns3: false,
        }
    }
}

impl Transport {
    pub(super) fn tcp(&self) -> TcpConfig {
        let window = u32::try_from(self.receive_window.0).unwrap_or(u32::MAX);
        TcpConfig {
            initial_window: self.initial_window,
            first_receive_window: window,
            receive_window: window,
            least_timeout: self.least_timeout,
            delayed_ack: self.delayed_ack,
            quick_acks: self.quick_acks,
            recovery: match (self.sack, self.like_ns3) {
                (true, false) => Recovery::Rack,
                (true, true) => Recovery::Ns3,
                (false, _) => Recovery::Duplicates,
            },
            congestion: self.congestion,
            slow_start: self.slow_start,
            restarts: self.restarts,
            probes: self.probes,
            ..TcpConfig::RACK
        }
    }

    pub(super) fn check(&self, section: &mut Section<'_>) {
        section.range("initial_window", self.initial_window, 1..=1_000);
        let times = Nanos::from_micros(10)..=Nanos::from_secs(10);
        section.range("least_timeout", self.least_timeout, times);
        let times = Nanos::ZERO..=Nanos::from_secs(1);
        section.range("delayed_ack", self.delayed_ack, times);
        let windows = Bytes(4 * 1_448)..=Bytes(1 << 30);
        section.range("receive_window", self.receive_window, windows);
        let plain = Self {
            protocol: self.protocol,
            ..Self::default()
        };
        if self.protocol == Protocol::Udp && *self != plain {
            section.at(
                "protocol",
                "UDP has no windows, no timers and no marks: leave out the other keys",
            );
        }
        if self.congestion == Congestion::Dctcp && !self.sack {
            section.at("sack", "DCTCP takes marks with SACK alone: leave it out");
        }
        let is_other = matches!(self.congestion, Congestion::Cubic | Congestion::PFabric);
        if self.like_ns3 && (!self.sack || is_other) {
            section.at(
                "like_ns3",
                "ns-3's way is that of NewReno and DCTCP with SACK alone: leave it out",
            );
        }
        if self.congestion == Congestion::PFabric && !self.sack {
            section.at("sack", "pFabric repairs with SACK: leave it out");
        }
    }
}
