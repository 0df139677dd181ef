//! TCP between a guest and its peers that is mostly right, under early acknowledgement:
//! what is kept stays bounded, and what comes out parses.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tailbound_dataplane::snoop::{Origin, RingPlacement};
use tailbound_dataplane::{GuestId, Packet, Pool, Snoop, SnoopConfig, SnoopMode, TcpMaker};
use tailbound_units::{Bytes, Nanos};

#[derive(Debug, Arbitrary)]
struct Input {
    strict: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
enum Step {
    Segment {
        to_guest: bool,
        v6: bool,
        port: bool,
        /// Numbers are near each other.
        seq: u16,
        ack: u16,
        flags: u8,
        window: u16,
        options: Vec<u8>,
        payload: u8,
        damage: Option<(u8, u8)>,
    },
    Wait(u16),
    Runs,
    NotPlaced(bool),
    Drain(bool),
    Abort,
}

const GUEST: GuestId = GuestId::first(0);
/// Limit of retained data, of a flow and of the guest.
const MAX_BYTES: Bytes = Bytes(20_000);

fn frame(step: &Step) -> Option<(Vec<u8>, bool)> {
    let Step::Segment {
        to_guest,
        v6,
        port,
        seq,
        ack,
        flags,
        window,
        options,
        payload,
        damage,
    } = step
    else {
        return None;
    };
    let options = &options[..options.len().min(40) / 4 * 4];
    let tcp_len = 20 + options.len() + usize::from(*payload);
    let mut frame = vec![2; 12];
    let ends = if *to_guest { [9, 3] } else { [3, 9] };
    let address = |end: u8, len: usize| [vec![0xfd; len - 1], vec![end]].concat();
    if *v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((tcp_len as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend(ends.map(|end| address(end, 16)).concat());
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + tcp_len as u16).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(ends.map(|end| address(end, 4)).concat());
    }
    let ports = [u16::from(*port), 80];
    let ports = if *to_guest {
        ports
    } else {
        [ports[1], ports[0]]
    };
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(u32::from(*seq).to_be_bytes());
    frame.extend(u32::from(*ack).to_be_bytes());
    frame.extend([((5 + options.len() / 4) as u8) << 4, *flags]);
    frame.extend(window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(options);
    frame.resize(frame.len() + usize::from(*payload), 7);
    if let Some((at, value)) = damage
        && let Some(byte) = frame.get_mut(usize::from(*at))
    {
        *byte = *value;
    }
    Some((frame, *to_guest))
}

fn check(frame: Packet) {
    let bytes = frame.bytes().to_vec();
    let pool = frame.pool().clone();
    let mut buffer = pool.buffer(Packet::HEADROOM + bytes.len());
    buffer[Packet::HEADROOM..Packet::HEADROOM + bytes.len()].copy_from_slice(&bytes);
    Packet::new(buffer, Packet::HEADROOM, bytes.len(), None, None).expect("it parses again");
}

fuzz_target!(|input: Input| {
    let pool = Pool::new();
    let config = SnoopConfig {
        mode: if input.strict {
            SnoopMode::Strict
        } else {
            SnoopMode::Retaining
        },
        flow: MAX_BYTES,
        guest: MAX_BYTES,
        flows: 2,
        ..SnoopConfig::default()
    };
    let maker = TcpMaker {
        pool: pool.clone(),
        guest: GUEST,
    };
    let mut snoop = Snoop::new(config, maker);
    let mut now = Nanos::from_secs(1);
    let mut placed = RingPlacement::All;
    for step in &input.steps {
        match step {
            Step::Wait(millis) => {
                now += Nanos::from_millis(u64::from(*millis));
                snoop.handle_timeout(now);
            }
            Step::Runs => snoop.handle_alive(now),
            Step::NotPlaced(false) => placed = RingPlacement::Waits,
            Step::NotPlaced(true) => placed = RingPlacement::Lost,
            Step::Drain(true) => snoop.begin_drain(),
            Step::Drain(false) => snoop.end_drain(),
            Step::Abort => drop(snoop.abort()),
            Step::Segment { .. } => {
                let Some((bytes, to_guest)) = frame(step) else {
                    continue;
                };
                let mut buffer = pool.buffer(Packet::HEADROOM + bytes.len());
                buffer[Packet::HEADROOM..Packet::HEADROOM + bytes.len()].copy_from_slice(&bytes);
                // As the host's own stack vouches for what it received.
                let virtio = to_guest.then_some([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                let source = (!to_guest).then_some(GUEST);
                let start = Packet::HEADROOM;
                let Ok(packet) = Packet::new(buffer, start, bytes.len(), virtio, source) else {
                    continue;
                };
                let passed = if to_guest {
                    let passed = snoop.handle_ingress(now, packet);
                    snoop.handle_placed(std::mem::replace(&mut placed, RingPlacement::All));
                    passed
                } else {
                    snoop.handle_egress(now, packet, Origin::OUTSIDE)
                };
                if let Some(frame) = passed {
                    check(frame);
                }
            }
        }
        while let Some(frame) = snoop.poll_to_guest() {
            check(frame);
        }
        while let Some(frame) = snoop.poll_to_peer() {
            check(frame);
        }
        assert!(snoop.retained() <= MAX_BYTES, "bounded");
        assert_eq!(snoop.owes(), !snoop.drained().is_done());
        assert!(snoop.len() <= 2);
    }
});
