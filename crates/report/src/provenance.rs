//! Origin of a result: its time and its program.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Origin of a result: its time and its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Time, in UTC (RFC 3339): `2026-01-31T09:05:00Z`.
    pub at: String,
    /// tailbound's version.
    pub version: String,
    /// The commit of the program, if the build knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Provenance {
    /// Returns the origin at the present time, or at `SOURCE_DATE_EPOCH` in seconds since 1970 if
    /// that variable is set: repeated results are then identical. `commit` is the program's commit,
    /// if known.
    pub fn now(commit: Option<&str>) -> Self {
        let said = std::env::var("SOURCE_DATE_EPOCH").ok();
        let said = said.and_then(|seconds| seconds.parse().ok());
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
        };
        Self {
            at: utc(said.unwrap_or_else(|| now().as_secs())),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit.map(str::to_owned),
        }
    }

    /// Returns the program: `0.1.0`, or `0.1.0 (1f2e3d4c5b6a)` with its commit.
    pub fn program(&self) -> String {
        match &self.commit {
            Some(commit) => format!("{} ({commit})", self.version),
            None => self.version.clone(),
        }
    }

    /// Returns the origin in words: `2026-01-31 09:05 UTC, tailbound 0.1.0 (1f2e3d4c5b6a)`.
    pub fn words(&self) -> String {
        let (date, time) = self.at.split_once('T').unwrap_or((&self.at, ""));
        let time = time
            .get(..5)
            .map(|time| format!(" {time} UTC"))
            .unwrap_or_default();
        format!("{date}{time}, tailbound {}", self.program())
    }
}

/// Returns a second since 1970 in the format of RFC 3339 (Hinnant, *chrono-compatible low-level
/// date algorithms*).
fn utc(second: u64) -> String {
    let (days, second) = (second / 86_400 + 719_468, second % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Years begin in March.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, after) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + after,
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (second, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_769_850_301, "2026-01-31T09:05:01Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(second), date);
        }
        let mut made = Provenance {
            at: "2026-01-31T09:05:01Z".to_owned(),
            version: "1.2.3".to_owned(),
            commit: None,
        };
        assert_eq!(made.words(), "2026-01-31 09:05 UTC, tailbound 1.2.3");
        made.commit = Some("1f2e3d+".to_owned());
        assert!(made.words().ends_with("tailbound 1.2.3 (1f2e3d+)"));
    }
}
