//! Encodes documents as values of etcd.
//!
//! etcd refuses requests of more than 1.5 MiB. A short document is stored as its JSON. A long one
//! is compressed and cut into parts under keys of their own, and the document's key holds a
//! [`Pointer`]. The parts are written before the transaction that points to them and are never
//! changed, so a reader sees the old document or the new one, never a mixture.

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::fmt;
use std::io::{self, Read, Write};

/// The longest document that is stored in its own key, in bytes.
pub(super) const INLINE: usize = 32 << 10;
/// The longest part.
pub(super) const PART: usize = 512 << 10;
/// Largest number of parts: 64 MiB compressed.
pub(super) const MAX_PARTS: u32 = 128;
/// The longest document, in bytes, which limits the reader's memory.
pub(super) const MAX_BYTES: u64 = 1 << 30;
/// The first character of a pointer, with which no JSON begins.
const MARK: char = '@';

/// The parts of a long document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The id of the parts, which is never used twice.
    pub id: String,
    /// The number of parts.
    pub count: u32,
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{} {}", self.id, self.count)
    }
}

impl Pointer {
    /// Returns the pointer that a value is; None if the value is a document itself.
    pub fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix(MARK)?;
        let (id, count) = text.split_once(' ')?;
        let count = count.parse().ok().filter(|n| (1..=MAX_PARTS).contains(n))?;
        let plain = |c: char| c.is_ascii_hexdigit() || c == '-';
        (!id.is_empty() && id.chars().all(plain)).then(|| Self {
            id: id.to_owned(),
            count,
        })
    }
}

/// Compresses a document and cuts it into parts; an error if there would be more than
/// [`MAX_PARTS`].
pub(super) fn cut(document: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(document)?;
    let packed = encoder.finish()?;
    if document.len() as u64 > MAX_BYTES || packed.len() > MAX_PARTS as usize * PART {
        return Err(io::Error::other(format!(
            "{} bytes, {} compressed: etcd gets at most {} compressed",
            document.len(),
            packed.len(),
            MAX_PARTS as usize * PART
        )));
    }
    Ok(packed.chunks(PART).map(<[u8]>::to_vec).collect())
}

/// Joins and unpacks the parts that [`cut`] made; an error if they are damaged.
pub(super) fn join(parts: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let packed = parts.concat();
    let mut document = Vec::new();
    DeflateDecoder::new(packed.as_slice())
        .take(MAX_BYTES)
        .read_to_end(&mut document)?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_document_comes_back_from_its_parts() {
        // Xorshift: bytes that do not compress.
        let mut x = 1_u64;
        let document: Vec<u8> = (0..3 * PART)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x.to_be_bytes()[0]
            })
            .collect();
        let parts = cut(&document).unwrap();
        assert!(parts.len() > 2 && parts.iter().all(|p| p.len() <= PART));
        assert_eq!(join(&parts).unwrap(), document);
    }

    #[test]
    fn a_missing_part_is_an_error() {
        let document: Vec<u8> = (0..4 * PART as u64)
            .map(|i| (i.wrapping_mul(i) >> 7).to_be_bytes()[7])
            .collect();
        let mut parts = cut(&document).unwrap();
        parts.pop();
        assert!(join(&parts).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_pointer_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(pointer) = Pointer::read(&bytes) {
                prop_assert_eq!(Pointer::read(pointer.to_string().as_bytes()), Some(pointer));
            }
        }

        #[test]
        fn a_pointer_comes_back_from_its_text(id in "[0-9a-f]{1,16}-[0-9]{1,6}", count in 1..=MAX_PARTS) {
            let pointer = Pointer { id, count };
            prop_assert_eq!(Pointer::read(pointer.to_string().as_bytes()), Some(pointer));
        }

        #[test]
        fn any_bytes_join_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = join(&[bytes]);
        }
    }
}
