//! TCP packets as a guest's kernel hands them to its NIC. Only bytes, so that the
//! benchmarks can share it; slow and plain, so that it can be checked by eye.

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
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (tpid, tci) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        let tcp_len = 20 + 4 * self.options + self.payload;
        let addresses = if self.v6 {
            self.ipv6(&mut bytes, tcp_len)
        } else {
            self.ipv4(&mut bytes, tcp_len)
        };
        bytes.extend(40_000u16.to_be_bytes());
        bytes.extend(80u16.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(77u32.to_be_bytes());
        bytes.push(((5 + self.options) as u8) << 4);
        bytes.push(self.flags);
        bytes.extend(512u16.to_be_bytes());
        let partial = plain_sum(&addresses, 6 + tcp_len as u64);
        bytes.extend(partial.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(vec![1; 4 * self.options]);
        bytes.extend((0..self.payload).map(Self::payload_byte));
        bytes
    }

    fn ipv4(&self, bytes: &mut Vec<u8>, tcp_len: usize) -> Vec<u8> {
        let start = bytes.len() + 2;
        let header_len = 20 + 4 * self.ip_options;
        bytes.extend([8, 0, 0x40 | (header_len / 4) as u8, self.tos]);
        bytes.extend(((header_len + tcp_len) as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend([0x40, 0, 64, 6, 0, 0]);
        let addresses = vec![10, 77, 0, 1, 10, 77, 0, 2];
        bytes.extend(&addresses);
        bytes.extend(vec![1; 4 * self.ip_options]);
        let checksum = !plain_sum(&bytes[start..], 0);
        bytes[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        addresses
    }

    fn ipv6(&self, bytes: &mut Vec<u8>, tcp_len: usize) -> Vec<u8> {
        bytes.extend([0x86, 0xdd, 0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
        bytes.extend(((8 * self.ip_options + tcp_len) as u16).to_be_bytes());
        bytes.extend([if self.ip_options > 0 { 60 } else { 6 }, 64]);
        let mut addresses = vec![0xfd; 31];
        addresses.push(2);
        bytes.extend(&addresses);
        for left in (0..self.ip_options).rev() {
            // PadN of four bytes.
            bytes.extend([if left > 0 { 60 } else { 6 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        addresses
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

/// The one's complement sum of `bytes` and `more`, by the definition.
pub(crate) fn plain_sum(bytes: &[u8], more: u64) -> u16 {
    let mut total = more;
    for pair in bytes.chunks(2) {
        total += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
