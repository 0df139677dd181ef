//! Segments for the benchmarks of early acknowledgement, and the guest that receives them.

#[path = "../../src/testing/frames.rs"]
mod frames;

use frames::{Segment, ethernet, ipv4};
use tailbound_dataplane::snoop::Origin;
use tailbound_dataplane::{GuestId, HashKeys, Packet, Pool, Snoop, SnoopConfig, TcpMaker};
use tailbound_units::{Bytes, Nanos};

/// Bytes in a full segment.
pub(crate) const PAYLOAD: u32 = 1448;
/// Begin of the run, after the handshakes.
pub(crate) const START: Nanos = Nanos::from_secs(1);

/// The guest of all segments.
const GUEST: GuestId = GuestId::first(1);

/// Returns a guest with this number of connections, each to a peer with the connection's number,
/// and the pool of the segments. The memory limits admit all early acknowledgements.
pub(crate) fn guest(flows: u32) -> (Snoop<Packet>, Pool) {
    let pool = Pool::with_keys(HashKeys::FIXED);
    let maker = TcpMaker {
        pool: pool.clone(),
        guest: GUEST,
    };
    let config = SnoopConfig {
        flows: flows as usize,
        flow: Bytes(1 << 30),
        guest: Bytes(1 << 31),
        ..SnoopConfig::default()
    };
    let mut snoop = Snoop::new(config, maker);
    for peer in 0..flows {
        let answer = segment(&pool, false, peer, 0, 1, 0);
        snoop.handle_egress(START, answer, Origin::OUTSIDE);
    }
    (snoop, pool)
}

/// Returns a segment over IPv4 with timestamps, as Linux sends it, with a valid checksum.
pub(crate) fn segment(
    pool: &Pool,
    to_guest: bool,
    peer: u32,
    seq: u32,
    ack: u32,
    payload: u32,
) -> Packet {
    let [a, b, c, d] = peer.to_be_bytes();
    let (guest, peer) = ([10, 0, 0, 1], [10 + a, b, c, d]);
    let (from, to, ports) = if to_guest {
        (peer, guest, [9_u16, 80])
    } else {
        (guest, peer, [80_u16, 9])
    };
    let flags = if ack == 1 && seq == 0 { 0x12 } else { 0x10 };
    let segment = Segment {
        ports,
        seq,
        ack,
        flags,
        window: 0xffff,
        options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9],
        payload: vec![5; payload as usize],
    };
    let segment = segment.complete(&[from, to].concat());
    let packet = ipv4(from.into(), to.into(), 6, &segment);
    let frame = ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 0x0800, &packet);
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let source = (!to_guest).then_some(GUEST);
    Packet::new(buffer, start, frame.len(), None, source).expect("well formed")
}
