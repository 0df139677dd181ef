//! What a TCP segment says, as far as early acknowledgement asks.

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
    /// To be handed on at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion was met (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// The upper bit of the counter of congestion (RFC 9768).
    pub const AE: Self = Self(0x100);
    /// The counter of congestion of RFC 9768.
    pub const ACE: Self = Self(0x1c0);

    /// Whether any of `other`'s bits is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits that both have.
    #[inline]
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The timestamps option (RFC 7323).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// `TSval`.
    pub value: u32,
    /// `TSecr`.
    pub echo: u32,
}

/// The blocks of a SACK option (RFC 2018); at most four fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sacks {
    blocks: [(Seq, Seq); 4],
    count: u8,
}

impl Sacks {
    /// Adds a block; a fifth is left out.
    pub fn add(&mut self, left: Seq, right: Seq) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (left, right);
            self.count += 1;
        }
    }

    /// The blocks, in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.blocks[..usize::from(self.count)].iter().copied()
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What the options of a first segment (SYN) agree on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The largest segment that its sender takes.
    pub mss: Option<u16>,
    /// By how many bits its sender's windows are shifted.
    pub scale: Option<u8>,
}

/// An option by which a connection is none of early acknowledgement's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exotic {
    /// TCP-MD5 (RFC 2385): whoever has no key signs nothing.
    Md5,
    /// TCP-AO (RFC 5925), likewise.
    AuthenticationOption,
    /// Multipath TCP (RFC 8684): its sequence numbers are elsewhere.
    Multipath,
    /// TCP Fast Open (RFC 7413): data before the handshake.
    FastOpen,
    /// A kind that is not known, or an option that breaks its own length.
    Unknown,
}

/// The options of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The timestamps, where there are some.
    pub timestamps: Option<Timestamps>,
    /// What arrived out of order, or twice.
    pub sacks: Sacks,
    /// Of a first segment.
    pub handshake: Handshake,
    /// The first of those that end early acknowledgement.
    pub exotic: Option<Exotic>,
}

impl Options {
    /// Reads the options of a header. Whatever stands there, it ends.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Self {
        // As every stack of today writes them.
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
            // SACK is permitted, and AccECN's counters of bytes (RFC 9768), which an
            // acknowledgement may leave out.
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

/// A TCP segment, or several that are yet to be cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// The number of its first byte.
    pub seq: Seq,
    /// What it acknowledges.
    pub ack: Seq,
    /// Bytes of payload.
    pub payload: u32,
    /// Payload of the largest segment that it will be on a wire.
    pub largest: u16,
    /// The window, as it stands in the header.
    pub window: u16,
    /// Its control bits.
    pub flags: Flags,
    /// It met congestion on its way (CE, RFC 3168).
    pub congestion: bool,
    /// Its options.
    pub options: Options,
}

impl Segment {
    /// The number behind its last byte of payload.
    #[inline]
    pub fn bytes_end(&self) -> Seq {
        self.seq + self.payload + u32::from(self.flags.has(Flags::SYN))
    }

    /// The number behind its last byte; FIN and SYN count as one each.
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
    fn options_are_read_and_those_not_known_are_noted() {
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
        fn whatever_stands_there_is_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let options = Options::parse(&bytes);
            prop_assert!(options.sacks.iter().count() <= 4);
        }
    }
}
