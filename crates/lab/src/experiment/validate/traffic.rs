//! Checks of messages, floods and meters beyond their types.

use super::{gap, within};
use crate::experiment::LabExperiment;
use std::ops::RangeInclusive;
use tailbound_experiment::Mistakes;
use tailbound_units::{Bytes, Nanos, Rate};

/// The shortest packet has a UDP header; the longest with its frame is 64 KiB.
const PACKETS: RangeInclusive<Bytes> = Bytes(28)..=Bytes(65_521);
/// A transfer begins with its number.
const TRANSFERS: RangeInclusive<Bytes> = Bytes(4)..=Bytes(100_000_000);
/// A packet begins with the sender's clock, and is one frame.
const RTP: RangeInclusive<Bytes> = Bytes(8)..=Bytes(1460);
/// The sizes that iperf3 accepts, up to one frame.
const IPERF: RangeInclusive<Bytes> = Bytes(16)..=Bytes(1472);
const MESSAGES: RangeInclusive<Bytes> = Bytes(90)..=Bytes(10_000_000);

impl LabExperiment {
    pub(super) fn check_traffic(&self, mistakes: &mut Mistakes) {
        for message in &self.message {
            if message.from.is_empty() || message.to.is_empty() {
                mistakes.at(&message.name, "needs senders and receivers");
            }
            for (from, to) in message.from.iter().zip(message.to.iter().cycle()) {
                self.check_two_guests(from, to, mistakes);
            }
            within(&message.name, "size", message.size, MESSAGES, mistakes);
            let mut ends = message.from.iter().chain(&message.to);
            if (message.ring.is_some() || message.vcpu_wait.is_some())
                && let Some(guest) = ends.find(|guest| !self.is_machine(guest.get_ref()))
            {
                mistakes.at(
                    guest,
                    "has no ring and no vCPU: it is not one of machines.guests",
                );
            }
            match (message.every, message.mean_gap) {
                (Some(time), None) | (None, Some(time)) => gap(&message.name, time, mistakes),
                _ => mistakes.at(&message.name, "needs either every or mean_gap"),
            }
        }
        for transfer in &self.transfer {
            self.check_two_guests(&transfer.from, &transfer.to, mistakes);
            within(&transfer.name, "size", transfer.size, TRANSFERS, mistakes);
            let window = transfer.initial_window;
            within(&transfer.name, "initial_window", window, 1..=1000, mistakes);
            gap(&transfer.name, transfer.mean_gap, mistakes);
        }
        for rtp in &self.rtp {
            self.check_two_guests(&rtp.from, &rtp.to, mistakes);
            within(&rtp.name, "payload", rtp.payload, RTP, mistakes);
            within(&rtp.name, "pieces", rtp.pieces, 1..=100, mistakes);
            gap(&rtp.name, rtp.every, mistakes);
            if let Some(time) = rtp.reactivated {
                gap(&rtp.name, time, mistakes);
            }
            if rtp.compute >= rtp.every {
                mistakes.at(
                    &rtp.name,
                    "computes longer than it has: choose a compute below every",
                );
            }
        }
        for iperf in &self.iperf {
            self.check_two_guests(&iperf.from, &iperf.to, mistakes);
            within(&iperf.name, "payload", iperf.payload, IPERF, mistakes);
            if iperf.rate == Rate(0) {
                mistakes.at(&iperf.name, "rate: choose above 0");
            }
        }
        for flood in &self.flood {
            self.check_two_guests(&flood.from, &flood.to, mistakes);
            if !PACKETS.contains(&flood.packet) {
                let rule = format!("packet {}: choose 28B to 65521B", flood.packet);
                mistakes.at(&flood.name, rule);
            }
        }
        for meter in &self.meter {
            self.check_two_guests(&meter.from, &meter.to, mistakes);
            if meter.rate == Rate(0) {
                mistakes.at(&meter.name, "rate: choose above 0");
            }
            // A meter counts whole seconds.
            if self.duration < Nanos::from_secs(1) {
                mistakes.at(&meter.name, "needs a duration of 1s or more");
            }
        }
        for watch in &self.watch {
            mistakes.known("host", &watch.host, self.hosts.keys().map(String::as_str));
        }
    }
}
