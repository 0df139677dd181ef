//! Streams of one document a line (NDJSON).

use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// The longest line. A host's guarantees are some hundred bytes a machine.
const MAX_LINE: usize = 16 << 20;

/// Size of one read in bytes.
const CHUNK: usize = 16 << 10;

/// Reason for the end of the documents.
#[derive(Debug)]
pub(crate) enum LineError {
    /// Reading failed, or took too long ([`io::ErrorKind::TimedOut`]).
    Read(io::Error),
    /// The stream ended in the middle of a line.
    Cut,
    /// A line has no end.
    TooLong,
    /// A line is not such a document.
    Content(serde_json::Error),
}

/// Reads one document from each line. Empty lines are skipped.
pub(crate) struct Lines<R> {
    reader: R,
    /// Bytes that were read and not returned yet.
    buffer: Vec<u8>,
    /// The length of the buffer's beginning that has no end of a line.
    searched: usize,
}

impl<R: Read> Lines<R> {
    pub(crate) const fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            searched: 0,
        }
    }

    /// Returns the next document; `None` after the last. Fails if no whole one arrives within
    /// `patience`, also while bytes trickle in.
    pub(crate) fn next<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
    ) -> Result<Option<T>, LineError> {
        let start = Instant::now();
        loop {
            let unsearched = &self.buffer[self.searched..];
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                self.searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(LineError::Content);
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE {
                return Err(LineError::TooLong);
            }
            if start.elapsed() > patience {
                return Err(LineError::Read(io::ErrorKind::TimedOut.into()));
            }
            if self.fill().map_err(LineError::Read)? == 0 {
                return if self.buffer.trim_ascii().is_empty() {
                    Ok(None)
                } else {
                    Err(LineError::Cut)
                };
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let old = self.buffer.len();
        self.buffer.resize(old + CHUNK, 0);
        let read = loop {
            match self.reader.read(&mut self.buffer[old..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(old + *read.as_ref().unwrap_or(&0));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    const TEST_TIMEOUT: Duration = Duration::from_mins(1);

    /// A reader that returns its pieces one at a time.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.0.first_mut() else {
                return Ok(0);
            };
            let len = piece.len().min(buffer.len());
            buffer[..len].copy_from_slice(&piece[..len]);
            piece.drain(..len);
            if piece.is_empty() {
                self.0.remove(0);
            }
            Ok(len)
        }
    }

    fn cut(mut text: Vec<u8>, lengths: &[usize]) -> Pieces {
        let mut pieces = Vec::new();
        for length in lengths {
            let rest = text.split_off((*length).min(text.len()));
            pieces.push(std::mem::replace(&mut text, rest));
        }
        pieces.push(text);
        pieces.retain(|piece| !piece.is_empty());
        Pieces(pieces)
    }

    #[test]
    fn an_end_within_a_line_is_no_end() {
        let mut lines = Lines::new(&b"{\"a\":1}\n\n{\"a\":"[..]);
        let first: Option<Value> = lines.next(TEST_TIMEOUT).unwrap();
        assert_eq!(first.unwrap()["a"], 1);
        assert!(matches!(
            lines.next::<Value>(TEST_TIMEOUT),
            Err(LineError::Cut)
        ));
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut lines = Lines::new(io::repeat(b'x'));
        assert!(matches!(
            lines.next::<Value>(TEST_TIMEOUT),
            Err(LineError::TooLong)
        ));
        assert!(lines.buffer.len() <= MAX_LINE + CHUNK);
    }

    #[test]
    fn a_trickle_without_a_line_runs_out_of_time() {
        let mut lines = Lines::new(io::repeat(b'x'));
        let late = lines.next::<Value>(Duration::ZERO);
        assert!(
            matches!(late, Err(LineError::Read(error)) if error.kind() == io::ErrorKind::TimedOut)
        );
    }

    proptest! {
        #[test]
        fn documents_come_whole_however_the_bytes_are_cut(
            numbers in prop::collection::vec(any::<i64>(), 0..20),
            lengths in prop::collection::vec(1..9_usize, 0..200),
            blank in "[ \t\r]{0,2}",
        ) {
            let line = |n: &i64| format!("{{\"n\":{n}}}{blank}\n{blank}\n");
            let text = numbers.iter().map(line).collect::<Vec<_>>().concat();
            let mut lines = Lines::new(cut(text.into_bytes(), &lengths));
            let mut seen = Vec::new();
            while let Some(value) = lines.next::<Value>(TEST_TIMEOUT).unwrap() {
                seen.push(value["n"].as_i64().unwrap());
            }
            prop_assert_eq!(seen, numbers);
        }

        #[test]
        fn no_bytes_make_the_line_reader_panic_or_loop_forever(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'{'), Just(b'1'), any::<u8>()], 0..300),
            lengths in prop::collection::vec(1..9_usize, 0..50),
        ) {
            let parts = text.split(|byte| *byte == b'\n').count();
            let mut lines = Lines::new(cut(text, &lengths));
            for _ in 0..parts {
                match lines.next::<Value>(TEST_TIMEOUT) {
                    Ok(Some(_)) | Err(LineError::Content(_)) => {}
                    Ok(None) | Err(LineError::Cut) => return Ok(()),
                    Err(error) => prop_assert!(false, "{error:?}"),
                }
            }
            prop_assert!(false, "more documents than lines");
        }
    }
}
