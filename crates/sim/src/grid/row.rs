//! A row: the results of one point, with a checksum.

use super::GridError;
use super::file::write_whole;
use super::scenario::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tailbound_report::{Results, Verdict};

/// Begin of a row's file, before its checksum.
const HEAD: &str = "tailbound-row 1 sha256:";

/// The results of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The point in the grid.
    pub point: usize,
    /// Hash of the inputs of the results.
    pub key: String,
    /// The results.
    pub results: Results,
}

impl Row {
    /// Returns the row of a point, without its charts and checks: checks were written for the
    /// experiment's own values, and charts follow from the variants.
    pub fn new(point: usize, key: &str, found: Results) -> Self {
        let results = Results {
            charts: Vec::new(),
            checks: Vec::new(),
            verdict: Verdict::Pass,
            verdict_reason: String::new(),
            sentence: None,
            words: std::collections::BTreeMap::new(),
            ..found
        };
        Self {
            point,
            key: key.to_owned(),
            results,
        }
    }

    /// Reads the row in a file, if the file exists.
    ///
    /// # Errors
    /// The content differs from the checksum, or the file cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, GridError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(GridError::file(path)(error)),
        };
        let corrupt = |why| GridError::Corrupt {
            path: path.to_owned(),
            why,
        };
        Self::from_bytes(&bytes).map(Some).map_err(corrupt)
    }

    /// Writes the row to a file, atomically and durably.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), GridError> {
        write_whole(path, &self.to_text())
    }

    /// Returns the row's file: a line with the checksum of the rest, then JSON.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the expected conditions always hold"
    )]
    pub fn to_text(&self) -> String {
        let body = serde_json::to_string(self).expect("plain values always serialize");
        format!("{HEAD}{}\n{body}\n", checksum(&format!("{body}\n")))
    }

    /// Reads a row's file.
    ///
    /// # Errors
    /// The content is invalid or differs from its checksum; the error names the reason.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        let (head, body) = text.split_once('\n').ok_or("it has no head")?;
        let sum = head
            .strip_prefix(HEAD)
            .ok_or("its head is not that of a row")?;
        if sum != checksum(body) {
            return Err("its checksum is not that of what it holds".to_owned());
        }
        serde_json::from_str(body).map_err(|error| error.to_string())
    }
}

fn checksum(text: &str) -> String {
    hex(&Sha256::digest(text))
}
