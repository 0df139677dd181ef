//! The messages of the network test: calls of 8 bytes and answers of 2 KB, each with 29 bytes of
//! overhead, as in the paper's RPC system (Bobtail, 5.1). Workflows also request 1 and 4 KB (5.2).
//!
//! Every message has a known length, so neither side reads or buffers more for its peer.

/// Length of the header of each message, in bytes.
pub const HEADER: usize = 29;
/// Length of a call without its header, in bytes.
pub const REQUEST: usize = 8;
/// Bytes that the longest answer carries.
pub const MAX_ANSWER_BYTES: usize = Size::Large.bytes();

const MAGIC: [u8; 4] = *b"TBRP";
const VERSION: u8 = 1;

/// Size of an answer in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 1 KB.
    Small,
    /// 2 KB: of the network test.
    Middle,
    /// 4 KB.
    Large,
}

impl Size {
    /// All sizes.
    pub const ALL: [Self; 3] = [Self::Small, Self::Middle, Self::Large];

    /// Returns how many bytes that is.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 1000,
            Self::Middle => 2000,
            Self::Large => 4000,
        }
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call for an answer of that size.
    Request(Size),
    /// The answer to the call of the same number.
    Response(Size),
}

impl Kind {
    /// Numbers of the kinds. The kinds of 2 KB came first; a server that knows no others refuses
    /// later ones.
    const NUMBERS: [(u8, Self); 6] = [
        (1, Self::Request(Size::Middle)),
        (2, Self::Response(Size::Middle)),
        (3, Self::Request(Size::Small)),
        (4, Self::Response(Size::Small)),
        (5, Self::Request(Size::Large)),
        (6, Self::Response(Size::Large)),
    ];

    fn number(self) -> u8 {
        let mut known = Self::NUMBERS.into_iter();
        known.find(|(_, kind)| *kind == self).map_or(0, |it| it.0)
    }

    fn of_number(number: u8) -> Option<Self> {
        let mut known = Self::NUMBERS.into_iter();
        known.find(|(known, _)| *known == number).map(|it| it.1)
    }

    /// Returns the number of bytes that follow its header.
    pub const fn payload(self) -> usize {
        match self {
            Self::Request(_) => REQUEST,
            Self::Response(size) => size.bytes(),
        }
    }
}

/// Header of a message: magic, version, kind, three zeros, the length of the body, the number and
/// the token, in big-endian order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// Counts the calls of a connection; its answer repeats it.
    pub number: u64,
    /// Chosen by the caller; its answer repeats it.
    pub token: u64,
}

/// An error in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes belong to another protocol.
    #[error("the message does not begin with TBRP: another protocol")]
    Magic,
    /// The bytes belong to another version.
    #[error("version {0} of the protocol is not {VERSION}: update the older side")]
    Version(u8),
    /// No message has this kind.
    #[error("messages of kind {0} are not known")]
    Kind(u8),
    /// The message is an answer, and a call was expected.
    #[error("received an answer instead of a request")]
    Direction,
    /// A reserved byte is not zero, or the length is not that of the message's kind.
    #[error("the message's length or reserved bytes are wrong")]
    Length,
}

impl Header {
    /// Returns the bytes of a call: the header, and the number again.
    pub fn call(&self) -> [u8; HEADER + REQUEST] {
        let mut bytes = [0; HEADER + REQUEST];
        bytes[..HEADER].copy_from_slice(&self.encode());
        bytes[HEADER..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Returns its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind.number();
        bytes[9..13].copy_from_slice(&(self.kind.payload() as u32).to_be_bytes());
        bytes[13..21].copy_from_slice(&self.number.to_be_bytes());
        bytes[21..].copy_from_slice(&self.token.to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The bytes have another protocol or version, or an unknown kind of message.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, WireError> {
        let long = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        if bytes[..4] != MAGIC {
            return Err(WireError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(WireError::Version(bytes[4]));
        }
        let kind = Kind::of_number(bytes[5]).ok_or(WireError::Kind(bytes[5]))?;
        let header = Self {
            kind,
            number: long(13),
            token: long(21),
        };
        if header.encode() != *bytes {
            return Err(WireError::Length);
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = Kind> {
        let kinds = Kind::NUMBERS.map(|(_, kind)| kind);
        proptest::sample::select(kinds.to_vec())
    }

    #[test]
    fn the_overhead_is_the_papers() {
        let header = Header {
            kind: Kind::Request(Size::Middle),
            number: 1,
            token: 2,
        };
        assert_eq!(header.encode().len(), 29);
        assert_eq!(&header.encode()[..9], b"TBRP\x01\x01\0\0\0");
    }

    #[test]
    fn each_wrong_field_has_its_own_error() {
        let good = Header {
            kind: Kind::Request(Size::Middle),
            number: 3,
            token: 4,
        };
        let with = |at: usize, byte| {
            let mut bytes = good.encode();
            bytes[at] = byte;
            Header::decode(&bytes)
        };
        assert_eq!(with(0, b'G'), Err(WireError::Magic));
        assert_eq!(with(4, 2), Err(WireError::Version(2)));
        assert_eq!(with(5, 7), Err(WireError::Kind(7)));
        assert_eq!(with(5, 2), Err(WireError::Length));
        assert_eq!(with(7, 1), Err(WireError::Length));
        assert_eq!(with(12, 9), Err(WireError::Length));
    }

    proptest! {
        #[test]
        fn an_encoded_header_decodes_to_itself(kind in kind(), number: u64, token: u64) {
            let header = Header { kind, number, token };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn a_decoded_header_encodes_to_the_same_bytes(bytes: [u8; HEADER], kind in kind(), head: bool) {
            let mut bytes = bytes;
            if head {
                // Random bytes alone never get past the magic.
                let good = Header { kind, number: 0, token: 0 }.encode();
                bytes[..13].copy_from_slice(&good[..13]);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
