//! A row: what one point found, and whether it is still what was written.

use super::GridError;
use super::file::write_whole;
use super::scenario::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tailbound_report::{Results, Verdict};

/// What a row's file begins with, before its checksum.
const HEAD: &str = "tailbound-row 1 sha256:";

/// What one point found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number in the grid.
    pub point: usize,
    /// What it follows from.
    pub key: String,
    /// What came out.
    pub results: Results,
}

impl Row {
    /// What a point found. Its charts and checks are left out: checks were written for the
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

    /// The row in a file, if that is there.
    ///
    /// # Errors
    /// It is not what was written, or cannot be read.
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

    /// Keeps it in a file: from then on it is there, whatever happens to this process or machine.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), GridError> {
        write_whole(path, &self.to_text())
    }

    /// The row's file: a line with the checksum of all that follows, then JSON.
    #[expect(clippy::missing_panics_doc, reason = "what is expected cannot fail")]
    pub fn to_text(&self) -> String {
        let body = serde_json::to_string(self).expect("plain values always serialize");
        format!("{HEAD}{}\n{body}\n", checksum(&format!("{body}\n")))
    }

    /// Reads a row's file.
    ///
    /// # Errors
    /// It is not what was written: why.
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
