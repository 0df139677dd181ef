//! Frames through a TAP that vhost-net holds as a VMM does, on a bridge with a guest of a network
//! namespace: outward, from the rings to that guest, and inward.

use crate::Outcome;
use crate::figures::{Figures, Unit};
use crate::load::{PORT, now, socket, wait_until};
use crate::network::{Guest, add_bridge, index, join, mac_text, run as ip};
use std::net::UdpSocket;
use tailbound_sys::departures::Log;
use tailbound_sys::vhost_net::Driver;
use tailbound_units::Nanos;

const TAP: &str = "tap0";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ADDRESS: [u8; 4] = [10, 0, 0, 9];
const PAYLOAD: usize = 1472;
/// Frames each way, one at a time, of which the first ones are not counted.
const FRAMES: u64 = 250;
const WARM_UP: u64 = 50;
/// Frames each way, with [`WINDOW`] on their way at a time.
const BURST: u64 = 500;
/// A quarter of a ring.
const WINDOW: u64 = 64;

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let guest = Guest::add(1)?;
    let address = ADDRESS.map(|byte| byte.to_string()).join(".");
    guest.knows(&address, &mac_text(MAC))?;
    let driver = Driver::open(TAP)?;
    ip(&format!("ip link set {TAP} up"))?;
    add_bridge("switch")?;
    join("switch", &guest.port_name())?;
    join("switch", TAP)?;
    let mut log = Log::load(4096)?;
    let (port, tap) = (guest.port(), index(TAP)?);
    log.watch(port)?;
    log.watch(tap)?;
    let mut ways = Ways {
        driver,
        peer: socket(guest, &address)?,
        frame: datagram(guest),
        others: 0,
    };
    let out = ways.outward(FRAMES, 1)?;
    let inward = ways.inward(FRAMES, 1)?;
    log.clear()?;
    ways.outward(BURST, WINDOW)?;
    let through = |log: &Log, interface| -> Outcome<u64> {
        let all = log.read()?.into_iter();
        Ok(all.filter(|it| it.interface == interface).count() as u64)
    };
    figures.add("out.frame", out, Unit::Instructions);
    figures.add("out.burst", BURST, Unit::Count);
    figures.add("out.burst.departures", through(&log, port)?, Unit::Count);
    log.clear()?;
    ways.inward(BURST, WINDOW)?;
    figures.add("in.frame", inward, Unit::Instructions);
    figures.add("in.burst", BURST, Unit::Count);
    figures.add("in.burst.departures", through(&log, tap)?, Unit::Count);
    figures.add("in.others", ways.others, Unit::Count);
    Ok(())
}

/// Both ends: the rings, and a socket of the guest.
struct Ways {
    driver: Driver,
    peer: UdpSocket,
    /// A frame to the guest.
    frame: Vec<u8>,
    /// Frames in the ring that are not of the experiment.
    others: u64,
}

impl Ways {
    /// Sends `frames` from the ring and receives them in the guest, with at most `window` on their
    /// way; returns instructions a frame.
    fn outward(&mut self, frames: u64, window: u64) -> Outcome<u64> {
        let mut buffer = [0; 2048];
        let (mut sent, mut received) = (0, 0);
        let mut start = now();
        while received < frames {
            while sent < frames && sent - received < window && self.driver.send(&self.frame)? {
                sent += 1;
            }
            let len = self.peer.recv(&mut buffer)?;
            if buffer[..len] != self.frame[42..] {
                return Err("a datagram changed on its way out".into());
            }
            received += 1;
            if received == WARM_UP {
                start = now();
            }
        }
        let elapsed = now().since(start);
        wait_until("vhost takes all frames", || Ok(self.driver.unsent()? == 0))?;
        Ok(elapsed.0 / (frames - WARM_UP))
    }

    /// Sends `frames` from the guest and receives them from the ring, as [`Self::outward`].
    fn inward(&mut self, frames: u64, window: u64) -> Outcome<u64> {
        let payload = [7; PAYLOAD];
        let (mut sent, mut received) = (0, 0);
        let mut start = None;
        while received < frames {
            while sent < frames && sent - received < window {
                self.peer.send(&payload)?;
                sent += 1;
            }
            if !self.driver.wait(Nanos::from_secs(1))? {
                return Err(format!("{received} of {sent} frames reached the ring").into());
            }
            let others = &mut self.others;
            self.driver.receive(|frame| match frame.get(42..) {
                Some(inner) if inner == payload && frame[..6] == MAC => received += 1,
                _ => *others += 1,
            })?;
            if received >= WARM_UP {
                start.get_or_insert_with(now);
            }
        }
        let elapsed = now().since(start.unwrap_or(Nanos::ZERO));
        Ok(elapsed.0 / (frames - WARM_UP))
    }
}

/// An Ethernet frame with a UDP datagram from the TAP to a guest.
fn datagram(to: Guest) -> Vec<u8> {
    let udp_len = (8 + PAYLOAD) as u16;
    let mut frame = Vec::with_capacity(42 + PAYLOAD);
    frame.extend(to.mac());
    frame.extend(MAC);
    frame.extend([0x08, 0x00]);
    // IPv4 without options, not to be fragmented, 64 hops, UDP.
    let mut header = [
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    header[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
    header[12..16].copy_from_slice(&ADDRESS);
    header[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(PORT.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(udp_len.to_be_bytes());
    // UDP over IPv4 may go without a checksum.
    frame.extend([0, 0]);
    frame.extend((0..PAYLOAD).map(|at| at as u8));
    frame
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_its_checksum_sums_up_to_nothing() {
        let frame = datagram(Guest::numbered(2));
        assert_eq!(frame.len(), 1514);
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(&frame[26..34], &[10, 0, 0, 9, 10, 0, 0, 2]);
    }
}
