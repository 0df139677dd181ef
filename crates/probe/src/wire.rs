//! The messages of the network test: 8 bytes up and 2 KB down, each with 29 bytes
//! of overhead, which is what the paper's RPC system added (Bobtail, 5.1).
//!
//! Every message has a length that is known beforehand, so neither side ever reads
//! or keeps more than that for its peer.

/// Bytes before each message.
pub const HEADER: usize = 29;
/// Bytes that a call carries.
pub const REQUEST: usize = 8;
/// Bytes that an answer carries.
pub const RESPONSE: usize = 2000;

const MAGIC: [u8; 4] = *b"TBRP";
const VERSION: u8 = 1;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request,
    /// The answer to the call of the same number.
    Response,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
        }
    }

    /// Returns the number of bytes that follow its header.
    pub const fn payload(self) -> usize {
        match self {
            Self::Request => REQUEST,
            Self::Response => RESPONSE,
        }
    }
}

/// What comes before the bytes of a message: magic, version, kind, three zeros, the
/// length of what follows, the number and the token, big end first.
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
    /// They belong to another protocol.
    #[error("the message does not begin with TBRP: another protocol")]
    Magic,
    /// They belong to another version.
    #[error("version {0} of the protocol is not {VERSION}: update the older side")]
    Version(u8),
    /// There is no such message, or not in this direction.
    #[error("a message of kind {0} was not expected")]
    Kind(u8),
    /// What must be zero is not, or the length is not that of its kind.
    #[error("the message's length or reserved bytes are wrong")]
    Length,
}

impl Header {
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

    /// Reads the header of a message of `kind`.
    pub fn decode(bytes: &[u8; HEADER], kind: Kind) -> Result<Self, WireError> {
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
        if bytes[5] != kind.number() {
            return Err(WireError::Kind(bytes[5]));
        }
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
        prop_oneof![Just(Kind::Request), Just(Kind::Response)]
    }

    #[test]
    fn the_overhead_is_the_papers() {
        let header = Header {
            kind: Kind::Request,
            number: 1,
            token: 2,
        };
        assert_eq!(header.encode().len(), 29);
        assert_eq!(&header.encode()[..9], b"TBRP\x01\x01\0\0\0");
    }

    #[test]
    fn each_wrong_field_has_its_own_error() {
        let good = Header {
            kind: Kind::Request,
            number: 3,
            token: 4,
        };
        let with = |at: usize, byte| {
            let mut bytes = good.encode();
            bytes[at] = byte;
            Header::decode(&bytes, Kind::Request)
        };
        assert_eq!(with(0, b'G'), Err(WireError::Magic));
        assert_eq!(with(4, 2), Err(WireError::Version(2)));
        assert_eq!(with(5, 2), Err(WireError::Kind(2)));
        assert_eq!(with(7, 1), Err(WireError::Length));
        assert_eq!(with(12, 9), Err(WireError::Length));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(kind in kind(), number: u64, token: u64) {
            let header = Header { kind, number, token };
            prop_assert_eq!(Header::decode(&header.encode(), kind), Ok(header));
        }

        #[test]
        fn what_is_read_is_what_would_be_written(bytes: [u8; HEADER], kind in kind(), head: bool) {
            let mut bytes = bytes;
            if head {
                // Random bytes alone never get past the magic.
                let good = Header { kind, number: 0, token: 0 }.encode();
                bytes[..13].copy_from_slice(&good[..13]);
            }
            if let Ok(header) = Header::decode(&bytes, kind) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
