//! TCP segments: the fields that early acknowledgement reads.

use super::seq::Seq;

/// Control bits of a TCP header: those of its byte 13, and AE above them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// The first segment of a direction.
    pub const SYN: Self = Self(0x02);
    /// The end of the connection.
    pub const RST: Self = Self(0x04);
    /// Push: deliver to the application immediately.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// Congestion was met (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// The upper bit of the counter of congestion (RFC 9768).
    pub const AE: Self = Self(0x100);
    /// The counter of congestion of RFC 9768.
    pub const ACE: Self = Self(0x1c0);

    /// Checks whether any of `other`'s bits is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the bits of either.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits of both.
    #[inline]
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The timestamps option (RFC 7323).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's time (`TSval`), in ticks of the sender's clock.
    pub value: u32,
    /// The echoed time (`TSecr`), in ticks of the receiver's clock.
    pub echo: u32,
}

/// The blocks of a SACK option (RFC 2018); at most four fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sacks {
    blocks: [(Seq, Seq); 4],
    count: u8,
}

impl Sacks {
    /// Adds a block; a fifth is ignored.
    pub fn add(&mut self, left: Seq, right: Seq) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (left, right);
            self.count += 1;
        }
    }

    /// The blocks in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.blocks[..usize::from(self.count)].iter().copied()
    }

    /// Checks that there is no block.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Options of a SYN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The largest segment that the sender accepts.
    pub mss: Option<u16>,
    /// Number of bits by which the sender's windows are shifted.
    pub scale: Option<u8>,
}

/// An option that rules out early acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exotic {
    /// TCP-MD5 (RFC 2385): the host has no key to sign with.
    Md5,
    /// TCP-AO (RFC 5925), for the same reason.
    AuthenticationOption,
    /// Multipath TCP (RFC 8684): it has sequence numbers of its own.
    Multipath,
    /// TCP Fast Open (RFC 7413): data before the handshake.
    FastOpen,
    /// An unknown option, or an option with a wrong length.
    Unknown,
}

/// The options of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// Segments that arrived out of order, or twice.
    pub sacks: Sacks,
    /// Options of a SYN.
    pub handshake: Handshake,
    /// The first option that rules out early acknowledgement.
    pub exotic: Option<Exotic>,
}

impl Options {
    /// Parses the options of a header, valid or not.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Self {
        // The layout of all current stacks.
        if let [1, 1, 8, 10, a, b, c, d, e, f, g, h] = *bytes {
            return Self {
                timestamps: Some(Timestamps {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                }),
                ..Self::default()
            };
        }
        if bytes.is_empty() {
            return Self::default();
        }
        Self::parse_each(bytes)
    }

    #[inline(never)]
    fn parse_each(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let value = rest.first().and_then(|len| {
                bytes
                    .get(2..usize::from(*len))
                    .zip(bytes.get((*len).into()..))
            });
            let Some((value, rest)) = value else {
                options.note(Exotic::Unknown);
                break;
            };
            options.read(*kind, value);
            bytes = rest;
        }
        options
    }

    fn read(&mut self, kind: u8, value: &[u8]) {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| value[at + i]));
        match (kind, value.len()) {
            (2, 2) => self.handshake.mss = Some(u16::from_be_bytes([value[0], value[1]])),
            (3, 1) => self.handshake.scale = Some(value[0].min(14)),
            // SACK permitted, and AccECN's byte counters (RFC 9768), which an acknowledgement may
            // omit.
            (4, 0) | (172 | 174, 0 | 3 | 6 | 9) => {}
            (5, 8 | 16 | 24 | 32) => {
                for at in (0..value.len()).step_by(8) {
                    self.sacks.add(Seq(word(at)), Seq(word(at + 4)));
                }
            }
            (8, 8) => {
                self.timestamps = Some(Timestamps {
                    value: word(0),
                    echo: word(4),
                });
            }
            (19, _) => self.note(Exotic::Md5),
            (29, _) => self.note(Exotic::AuthenticationOption),
            (30, _) => self.note(Exotic::Multipath),
            (34, _) => self.note(Exotic::FastOpen),
            _ => self.note(Exotic::Unknown),
        }
    }

    fn note(&mut self, exotic: Exotic) {
        self.exotic.get_or_insert(exotic);
    }
}

/// A TCP segment, or several before segmentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// Bytes of payload.
    pub payload: u32,
    /// Payload of the largest resulting segment on a wire.
    pub largest: u16,
    /// The window as in the header.
    pub window: u16,
    /// The control bits.
    pub flags: Flags,
    /// True if the segment met congestion on its path (CE, RFC 3168).
    pub congestion: bool,
    /// The options.
    pub options: Options,
}

impl Segment {
    /// The number behind the last byte of payload.
    #[inline]
    pub fn bytes_end(&self) -> Seq {
        self.seq + self.payload + u32::from(self.flags.has(Flags::SYN))
    }

    /// The number behind the last byte; FIN and SYN count as one each.
    #[inline]
    pub fn end(&self) -> Seq {
        let control = u32::from(self.flags.has(Flags::FIN)) + u32::from(self.flags.has(Flags::SYN));
        self.seq + self.payload + control
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tcp_options_are_parsed_and_unknown_ones_are_flagged() {
        let stamps = Timestamps { value: 1, echo: 2 };
        let plain = Options::parse(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(plain.timestamps, Some(stamps));
        let syn = [
            2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7,
        ];
        let syn = Options::parse(&syn);
        let agreed = Handshake {
            mss: Some(1460),
            scale: Some(7),
        };
        assert_eq!(
            (syn.handshake, syn.timestamps, syn.exotic),
            (agreed, Some(stamps), None)
        );
        let sack = Options::parse(&[1, 1, 5, 10, 0, 0, 0, 5, 0, 0, 0, 9]);
        assert!(sack.sacks.iter().eq([(Seq(5), Seq(9))]));
        for (bytes, exotic) in [
            (&[19, 2][..], Exotic::Md5),
            (&[29, 4, 0, 0], Exotic::AuthenticationOption),
            (&[30, 3, 0], Exotic::Multipath),
            (&[34, 2], Exotic::FastOpen),
            (&[254, 4, 0xf9, 0x89], Exotic::Unknown),
            (&[8, 9, 0, 0, 0, 0, 0, 0, 0], Exotic::Unknown),
            (&[8, 10, 0], Exotic::Unknown),
            (&[8, 1], Exotic::Unknown),
            (&[8], Exotic::Unknown),
        ] {
            assert_eq!(Options::parse(bytes).exotic, Some(exotic), "{bytes:?}");
        }
        let counters = Options::parse(&[172, 5, 0, 0, 1, 1, 1, 1]);
        assert_eq!(counters, Options::default());
        assert_eq!(
            Options::parse(&[0, 77]).exotic,
            None,
            "nothing counts behind the end"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_option_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let options = Options::parse(&bytes);
            prop_assert!(options.sacks.iter().count() <= 4);
        }
    }
}
