//! TCP packets as a guest's kernel hands them to its NIC. Only bytes, so that the
//! benchmarks can share it; slow and plain, so that it can be checked by eye.

use super::frames::{Ipv4, Ipv6, Segment};

/// Fields of a TCP packet.
#[derive(Debug, Clone)]
pub(crate) struct Tcp {
    pub(crate) v6: bool,
    /// VLAN tags: TPID and TCI, outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    /// Words of IPv4 options (no-operation), or of 8 bytes each, IPv6 destination
    /// option headers.
    pub(crate) ip_options: usize,
    /// Words of TCP options (no-operation).
    pub(crate) options: usize,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) payload: usize,
    /// Segment size; 0 for a packet that is not to be segmented.
    pub(crate) gso: u16,
}

impl Default for Tcp {
    /// 64 KB over IPv4 with time stamps, as Linux sends it.
    fn default() -> Self {
        Self {
            v6: false,
            tags: Vec::new(),
            ip_options: 0,
            options: 3,
            tos: 0,
            id: 1,
            sequence: 1000,
            flags: 0x18,
            payload: 45 * 1448,
            gso: 1448,
        }
    }
}

impl Tcp {
    pub(crate) fn network(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    pub(crate) fn transport(&self) -> usize {
        self.network()
            + if self.v6 {
                40 + 8 * self.ip_options
            } else {
                20 + 4 * self.ip_options
            }
    }

    pub(crate) fn header_len(&self) -> usize {
        self.transport() + 20 + 4 * self.options
    }

    /// Byte `index` of the payload.
    pub(crate) fn payload_byte(index: usize) -> u8 {
        (index ^ (index >> 8)) as u8
    }

    /// The frame; its TCP checksum is partial.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (tpid, tci) in &self.tags {
            frame.extend([*tpid, *tci].map(u16::to_be_bytes).concat());
        }
        let segment = Segment {
            ports: [40_000, 80],
            seq: self.sequence,
            ack: 77,
            flags: self.flags.into(),
            window: 512,
            options: vec![1; 4 * self.options],
            payload: (0..self.payload).map(Self::payload_byte).collect(),
        };
        if self.v6 {
            frame.extend([0x86, 0xdd]);
            frame.extend(self.ipv6(&segment));
        } else {
            frame.extend([8, 0]);
            frame.extend(self.ipv4(&segment));
        }
        frame
    }

    fn ipv4(&self, segment: &Segment) -> Vec<u8> {
        let (from, to) = ([10, 77, 0, 1], [10, 77, 0, 2]);
        let header = Ipv4 {
            tos: self.tos,
            id: self.id,
            options: self.ip_options,
            ..Ipv4::new(from.into(), to.into(), 6)
        };
        header.packet(&segment.partial(&[from, to].concat()))
    }

    fn ipv6(&self, segment: &Segment) -> Vec<u8> {
        let (from, mut to) = ([0xfd; 16], [0xfd; 16]);
        to[15] = 2;
        let kind = |left: usize| if left > 0 { 60 } else { 6 };
        let header = Ipv6 {
            traffic_class: self.tos,
            hops: 64,
            ..Ipv6::new(from.into(), to.into(), kind(self.ip_options))
        };
        // Each option is PadN of four bytes.
        let options = (0..self.ip_options).rev();
        let options = options.flat_map(|left| [kind(left), 0, 1, 4, 0, 0, 0, 0]);
        let mut payload: Vec<u8> = options.collect();
        payload.extend(segment.partial(&[from, to].concat()));
        header.packet(&payload)
    }

    /// The virtio header that a guest's kernel writes.
    pub(crate) fn virtio(&self) -> [u8; 10] {
        let mut header = [0; 10];
        header[0] = 1;
        if self.gso > 0 {
            header[1] = if self.v6 { 4 } else { 1 } | if self.flags & 0x80 != 0 { 0x80 } else { 0 };
        }
        header[2..4].copy_from_slice(&(self.header_len() as u16).to_le_bytes());
        header[4..6].copy_from_slice(&self.gso.to_le_bytes());
        header[6..8].copy_from_slice(&(self.transport() as u16).to_le_bytes());
        header[8..10].copy_from_slice(&16u16.to_le_bytes());
        header
    }
}
