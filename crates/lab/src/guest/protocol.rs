//! The lab's own requests: a magic number and the size of the answer, both four bytes, big endian.
//! An answer is that number of filler bytes.

use std::io;

const MAGIC: u32 = 0x7462_7131; // "tbq1"

/// The size of a request, in bytes.
pub(super) const REQUEST: usize = 8;

/// The largest answer: the limit of a wrong peer's requests.
pub(super) const MAX_ANSWER: u32 = 1_000_000_000;

/// Builds the request for an answer of `size` bytes.
pub(super) fn request(size: u32) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[4..].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// Parses requests in a byte stream with pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Requests {
    partial: [u8; REQUEST],
    filled: usize,
}

impl Requests {
    /// Returns the count of the requests that `bytes` complete, and the total size of their
    /// answers.
    ///
    /// # Errors
    /// The stream is not of this protocol; the following bytes are not parseable.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> io::Result<RequestCount> {
        let mut counts = RequestCount::default();
        while !bytes.is_empty() {
            let part = bytes.len().min(REQUEST - self.filled);
            self.partial[self.filled..self.filled + part].copy_from_slice(&bytes[..part]);
            self.filled += part;
            bytes = &bytes[part..];
            if self.filled == REQUEST {
                self.filled = 0;
                counts.bytes += u64::from(parse(self.partial)?);
                counts.requests += 1;
            }
        }
        Ok(counts)
    }
}

/// Requests in a piece of the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestCount {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

fn parse(request: [u8; REQUEST]) -> io::Result<u32> {
    let [m0, m1, m2, m3, s0, s1, s2, s3] = request;
    let (magic, size) = (
        u32::from_be_bytes([m0, m1, m2, m3]),
        u32::from_be_bytes([s0, s1, s2, s3]),
    );
    if magic == MAGIC && (1..=MAX_ANSWER).contains(&size) {
        return Ok(size);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not a request: {request:02x?}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_are_found_however_the_stream_is_cut(
            sizes in prop::collection::vec(1..=MAX_ANSWER, 0..20),
            cut in 1usize..20,
        ) {
            let stream: Vec<u8> = sizes.iter().flat_map(|size| request(*size)).collect();
            let mut requests = Requests::default();
            let mut total = RequestCount::default();
            for piece in stream.chunks(cut) {
                let asked = requests.take(piece).unwrap();
                total.requests += asked.requests;
                total.bytes += asked.bytes;
            }
            prop_assert_eq!(total.requests, sizes.len() as u64);
            prop_assert_eq!(total.bytes, sizes.iter().map(|size| u64::from(*size)).sum::<u64>());
        }

        #[test]
        fn other_bytes_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 8..100)) {
            prop_assume!(bytes[..4] != MAGIC.to_be_bytes());
            prop_assert!(Requests::default().take(&bytes).is_err());
        }
    }

    #[test]
    fn an_answer_of_no_bytes_or_too_many_is_refused() {
        assert!(Requests::default().take(&request(0)).is_err());
        assert!(Requests::default().take(&request(MAX_ANSWER + 1)).is_err());
    }
}
