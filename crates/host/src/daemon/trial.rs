//! Sends trial frames in a guest's name, at the rate that its guarantee permits.

use super::named::guest_named;
use crate::inventory::Inventory;
use crate::socket::{Outcome, Reply, TrialRequest};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet,
    Ipv4Repr, UdpPacket, UdpRepr,
};
use std::net::Ipv4Addr;
use tailbound_dataplane::GuestId;
use tailbound_switch::{Ports, Switch};
use tailbound_units::Nanos;

/// A frame of full length, without its FCS.
const LENGTH: usize = 1_514;
/// The port that accepts all datagrams and answers none (RFC 863).
const DISCARD: u16 = 9;

/// A trial in progress.
struct Trial {
    guest: GuestId,
    frame: Vec<u8>,
    until: Nanos,
    /// The time of the last frames. `next` is the time of the next ones.
    last: Nanos,
    next: Nanos,
    sent: u64,
    reply: Reply,
}

/// Largest number of concurrent trials: each occupies the packet loop 5,000 times a second.
const MAX_TRIALS: usize = 4;

/// Checks that another trial, of `guest`, may begin beside those of `running`.
fn check_room(guest: GuestId, running: &[GuestId]) -> Result<(), String> {
    let why = if running.contains(&guest) {
        // Two would share its guarantee, and neither be the whole of it.
        "frames are sent in its name already"
    } else if running.len() >= MAX_TRIALS {
        "frames are sent in the names of four guests already"
    } else {
        return Ok(());
    };
    Err(format!("{why}; a trial ends within 70 s: retry then"))
}

/// Interval between frames: a fraction of their waiting time.
const EVERY: Nanos = Nanos::from_micros(200);

/// The trials in progress.
#[derive(Default)]
pub(super) struct Trials(Vec<Trial>);

impl Trials {
    /// Returns the number of trials.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the time of the next event.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        let times = self.0.iter().map(|trial| trial.next.min(trial.until));
        times.min()
    }

    /// Begins to send in a guest's name until a time. A guest without a guarantee sends nothing.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        order: &TrialRequest,
        until: Nanos,
        switch: &Switch,
        inventory: &Inventory,
        reply: Reply,
    ) {
        let Some((guest, reply)) = guest_named(switch, &order.guest, reply) else {
            return;
        };
        if switch.guarantee(guest).is_none() {
            return reply.done(Outcome::refused(format!(
                "nothing is guaranteed to {}: there is nothing to try",
                order.guest
            )));
        }
        let running: Vec<_> = self.0.iter().map(|trial| trial.guest).collect();
        if let Err(why) = check_room(guest, &running) {
            return reply.done(Outcome::refused(format!("{}: {why}", order.guest)));
        }
        let own = inventory.guest(&order.guest);
        let own = own.and_then(|item| Some((item.mac, item.ipv4()?)));
        let Some((mac, address)) = own else {
            return reply.done(Outcome::refused(format!(
                "{} has no IPv4 address in its configuration that frames could be sent from",
                order.guest
            )));
        };
        tracing::info!(guest = order.guest, to = %order.to, "sends in a guest's name");
        self.0.push(Trial {
            guest,
            frame: datagram([order.mac, mac], [order.to, address]),
            until,
            last: now,
            next: now,
            sent: 0,
            reply,
        });
    }

    /// Sends the frames that guests' guarantees permit, and answers at the end of the time.
    pub(super) fn poll(&mut self, now: Nanos, switch: &mut Switch, ports: &Ports) {
        for mut trial in std::mem::take(&mut self.0) {
            if now < trial.until {
                let ago = now.since(trial.last);
                let guest = switch.guest_mut(trial.guest);
                let sent_count =
                    guest.map_or(0, |mut guest| guest.send_as(&trial.frame, ago, ports));
                if sent_count > 0 {
                    trial.last = now;
                }
                trial.next = now + EVERY;
                trial.sent += sent_count as u64;
                self.0.push(trial);
            } else {
                trial.reply.done(Outcome::Sent {
                    packets: trial.sent,
                });
            }
        }
    }
}

/// Makes a datagram of full length to the port *discard*.
fn datagram([to, from]: [[u8; 6]; 2], [destination, source]: [Ipv4Addr; 2]) -> Vec<u8> {
    const PAYLOAD: usize = LENGTH - 42;
    let checksums = ChecksumCapabilities::default();
    let mut frame = vec![0; LENGTH];
    let mut ethernet = EthernetFrame::new_unchecked(&mut frame[..]);
    let header = EthernetRepr {
        src_addr: EthernetAddress(from),
        dst_addr: EthernetAddress(to),
        ethertype: EthernetProtocol::Ipv4,
    };
    header.emit(&mut ethernet);
    let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    let header = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Udp,
        payload_len: 8 + PAYLOAD,
        hop_limit: 64,
    };
    header.emit(&mut packet, &checksums);
    let datagram = UdpRepr {
        src_port: DISCARD,
        dst_port: DISCARD,
    };
    datagram.emit(
        &mut UdpPacket::new_unchecked(packet.payload_mut()),
        &source.into(),
        &destination.into(),
        PAYLOAD,
        |_| {},
        &checksums,
    );
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_dataplane::testing::frames::plain_sum;

    #[test]
    fn few_trials_run_at_once_and_one_of_a_guest() {
        let guest = GuestId::first;
        let four = [1, 2, 3, 4].map(guest);
        assert_eq!(check_room(guest(5), &four[..3]), Ok(()));
        let same = check_room(guest(2), &four[..3]).unwrap_err();
        assert!(same.starts_with("frames are sent in its name"), "{same}");
        let fifth = check_room(guest(5), &four).unwrap_err();
        assert!(fifth.contains("four guests already"), "{fifth}");
    }

    #[test]
    fn a_trial_datagram_has_valid_headers_and_checksums() {
        let [to, from] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1)];
        let frame = datagram([[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]], [to, from]);
        assert_eq!(frame.len(), LENGTH);
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
        // The sum over a right header is all ones (RFC 1071).
        assert_eq!(plain_sum(&frame[14..34], 0), 0xffff);
        let pseudo = plain_sum(&frame[26..34], 17 + 1_480);
        assert_eq!(plain_sum(&frame[34..], pseudo.into()), 0xffff);
        assert_eq!(frame[16..18], 1_500_u16.to_be_bytes());
        assert_eq!(frame[36..40], [0, 9, 0x05, 0xc8]);
    }
}
