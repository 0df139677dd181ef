//! Checks of messages, floods and meters beyond their types.

use super::Checker;
use crate::experiment::Message;
use std::ops::RangeInclusive;
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

impl Checker<'_, '_> {
    pub(super) fn check_traffic(&mut self) {
        for message in &self.lab.message {
            self.check_message(message);
        }
        for transfer in &self.lab.transfer {
            self.check_two_guests(&transfer.from, &transfer.to);
            self.within(&transfer.name, "size", transfer.size, TRANSFERS);
            let window = transfer.initial_window;
            self.within(&transfer.name, "initial_window", window, 1..=1000);
            self.gap(&transfer.name, transfer.mean_gap);
        }
        for rtp in &self.lab.rtp {
            self.check_two_guests(&rtp.from, &rtp.to);
            self.within(&rtp.name, "payload", rtp.payload, RTP);
            self.within(&rtp.name, "pieces", rtp.pieces, 1..=100);
            self.gap(&rtp.name, rtp.every);
            if let Some(time) = rtp.reactivated {
                self.gap(&rtp.name, time);
            }
            if rtp.compute >= rtp.every {
                self.wrong(
                    &rtp.name,
                    "computes longer than it has: choose a compute below every",
                );
            }
        }
        for iperf in &self.lab.iperf {
            self.check_two_guests(&iperf.from, &iperf.to);
            self.within(&iperf.name, "payload", iperf.payload, IPERF);
            if iperf.rate == Rate(0) {
                self.wrong(&iperf.name, "rate: choose above 0");
            }
        }
        for flood in &self.lab.flood {
            self.check_two_guests(&flood.from, &flood.to);
            if !PACKETS.contains(&flood.packet) {
                let rule = format!("packet {}: choose 28B to 65521B", flood.packet);
                self.wrong(&flood.name, rule);
            }
        }
        for meter in &self.lab.meter {
            self.check_two_guests(&meter.from, &meter.to);
            if meter.rate == Rate(0) {
                self.wrong(&meter.name, "rate: choose above 0");
            }
            // A meter counts whole seconds.
            if self.lab.duration < Nanos::from_secs(1) {
                self.wrong(&meter.name, "needs a duration of 1s or more");
            }
        }
        for watch in &self.lab.watch {
            self.mistakes.known(
                "host",
                &watch.host,
                self.lab.hosts.keys().map(String::as_str),
            );
        }
    }

    fn check_message(&mut self, message: &Message) {
        if message.from.is_empty() || message.to.is_empty() {
            self.wrong(&message.name, "needs senders and receivers");
        }
        for (from, to) in message.from.iter().zip(message.to.iter().cycle()) {
            self.check_two_guests(from, to);
        }
        self.within(&message.name, "size", message.size, MESSAGES);
        let mut ends = message.from.iter().chain(&message.to);
        if (message.ring.is_some() || message.vcpu_wait.is_some())
            && let Some(guest) = ends.find(|guest| !self.lab.is_machine(guest.get_ref()))
        {
            self.wrong(
                guest,
                "has no ring and no vCPU: it is not one of machines.guests",
            );
        }
        match (message.every, message.mean_gap) {
            (Some(time), None) | (None, Some(time)) => self.gap(&message.name, time),
            _ => self.wrong(&message.name, "needs either every or mean_gap"),
        }
    }
}
