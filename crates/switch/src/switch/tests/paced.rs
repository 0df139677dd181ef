//! A paced uplink, in virtual time on memory ports.

mod backpressure;
mod classes;
mod drain;
mod elastic;
mod floods;
mod guarantees;
mod local;
mod random;
mod traced;

use super::*;
use tailbound_dataplane::pacer::void;
use tailbound_dataplane::testing::frames::{Ipv4, Segment};
use tailbound_dataplane::{FlowKey, Guarantee, PacedPipelineConfig, PacerConfig};

const LINK: Rate = Rate::from_mbit(1000);
/// A full frame on the wire.
const FULL: u64 = 1538;

pub(super) fn guarantee(mbit: u64) -> Guarantee {
    Guarantee::new(Rate::from_mbit(mbit), Bytes(15_380), LINK)
}

pub(super) fn wire() -> PacerConfig {
    PacerConfig::strict(LINK)
}

/// Makes the guests of [`Bench`] behind a paced uplink, with the guarantees of A and B.
pub(super) fn paced(
    wire: &PacerConfig,
    a: Option<Guarantee>,
    b: Option<Guarantee>,
) -> SwitchConfig {
    let mut config = config(&PipelineConfig::default());
    config.uplink = Some(EgressConfig::Pacer(PacedPipelineConfig::new(wire.clone())));
    config.guests[0].guarantee = a;
    config.guests[1].guarantee = b;
    config
}

/// Returns the pacing of `config`'s uplink.
fn pacing(config: &mut SwitchConfig) -> &mut PacedPipelineConfig {
    match &mut config.uplink {
        Some(EgressConfig::Pacer(pacing)) => pacing,
        _ => panic!("it is not paced"),
    }
}

fn bench(config: SwitchConfig) -> Bench {
    let mut bench = Bench::new(&PipelineConfig::default());
    bench.switch = Switch::new(config).expect("no rule is broken");
    bench
}

impl Bench {
    /// Returns the counters of the uplink's pacer.
    fn pacing(&mut self) -> UplinkPacing {
        let snapshot = self.switch.snapshot(&mut self.ports);
        let uplink = snapshot.uplink.expect("there is one");
        uplink.pacing.expect("it is paced")
    }

    /// Returns the pacer's counters for the guest at a port.
    fn guest_pacing(&mut self, port: usize) -> GuestPacing {
        self.guest(port).pacing.expect("the uplink is paced")
    }
}

/// Makes a full frame from A or B to a station behind the uplink.
pub(super) fn full(guest: usize, n: u32) -> Vec<u8> {
    frame(guest, n, 1472)
}

/// Makes such a frame with `len` bytes of payload.
fn frame(guest: usize, n: u32, len: usize) -> Vec<u8> {
    let (mac, ip) = if guest == A { (MAC_A, A4) } else { (MAC_B, B4) };
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(len, 0);
    ethernet(
        GATEWAY,
        mac,
        0x0800,
        &ipv4(ip, FAR, 17, &udp(1, 2, &payload)),
    )
}

/// Returns the guest and the number in a frame of [`full`]; `None` for a void.
fn read(frame: &[u8]) -> Option<(usize, u32)> {
    if frame[..6] == frame[6..12] {
        assert_eq!(frame[12..14], [0x88, 0xb5]);
        return None;
    }
    let guest = if frame[6..12] == MAC_A.0 { A } else { B };
    let number = frame[42..46].first_chunk().expect("four bytes");
    Some((guest, u32::from_be_bytes(*number)))
}

/// The frames on a wire that sends the given items back to back, each with the byte at which it
/// begins.
#[derive(Default)]
struct OnTheWire {
    at: u64,
    frames: Vec<(u64, usize, u32)>,
}

impl OnTheWire {
    fn take(&mut self, bench: &Bench) {
        let sent = std::mem::take(&mut bench.wires[UPLINK].borrow_mut().from_port);
        for (now, frame) in sent {
            self.at = self.at.max(LINK.bytes_in(now).0);
            if let Some((guest, n)) = read(&frame) {
                self.frames.push((self.at, guest, n));
            }
            self.at += void::on_the_wire(frame.len()).0;
        }
    }

    /// Checks that every interval between two frames of `guest` conforms to its guarantee.
    fn check(&self, guest: usize, guarantee: &Guarantee) {
        let begins = self.frames.iter().filter(|(_, from, _)| *from == guest);
        let begins: Vec<_> = begins.map(|(at, ..)| *at).collect();
        for (first, from) in begins.iter().enumerate() {
            for (last, to) in begins.iter().enumerate().skip(first + 1).take(400) {
                let time = LINK.time_for(Bytes(to - from));
                let sent = (last - first + 1) as u64 * FULL;
                let may = guarantee.burst.0 + guarantee.bandwidth.bytes_in(time).0 + 2;
                assert!(sent <= may, "{sent} bytes in {time}, and {may} may");
            }
        }
    }

    fn numbers(&self, guest: usize) -> Vec<u32> {
        let own = self.frames.iter().filter(|(_, from, _)| *from == guest);
        own.map(|(.., n)| *n).collect()
    }
}

/// Makes the `n`th TCP packet of `len` bytes of payload from A or B, to be segmented at `size`
/// bytes.
fn tcp(guest: usize, n: u32, len: usize, size: u16) -> (Vec<u8>, [u8; 10]) {
    let (mac, ip) = if guest == A { (MAC_A, A4) } else { (MAC_B, B4) };
    let segment = Segment {
        ports: [40_000, 80],
        seq: n * len as u32,
        ack: 1,
        flags: 0x10,
        window: 512,
        options: Vec::new(),
        payload: vec![n as u8; len],
    };
    let header = Ipv4 {
        tos: 2,
        ..Ipv4::new(ip, FAR, 6)
    };
    let packet = header.packet(&segment.bytes());
    let frame = ethernet(GATEWAY, mac, 0x0800, &packet);
    let mut virtio = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0];
    virtio[4..6].copy_from_slice(&size.to_le_bytes());
    (frame, virtio)
}
