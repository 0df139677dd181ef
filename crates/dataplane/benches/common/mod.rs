//! Segments for the benchmarks of early acknowledgement, and the guest that receives them.

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
    let mut tcp = ports.map(u16::to_be_bytes).concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 9]);
    tcp.resize(32 + payload as usize, 5);
    let mut sum = 6 + tcp.len() as u32;
    for pair in [&from[..], &to, &tcp].concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + tcp.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(tcp);
    let start = Packet::HEADROOM;
    let mut buffer = pool.buffer(start + frame.len());
    buffer[start..start + frame.len()].copy_from_slice(&frame);
    let source = (!to_guest).then_some(GUEST);
    Packet::new(buffer, start, frame.len(), None, source).expect("well formed")
}
