//! The lateness of frames behind their departure times, for `adopt --list` and `doctor adopt`.

use serde::Serialize;
use tailbound_adopt::live::Live;
use tailbound_adopt::{HostError, lateness};
use tailbound_sys::edge::Lateness;
use tailbound_units::Nanos;

/// The lateness of frames on this host.
#[derive(Debug, Serialize)]
pub(in crate::command) struct LatenessRow {
    frames: u64,
    largest_ns: u64,
    /// With a margin; absent until the host is warmed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_ns: Option<u64>,
}

impl LatenessRow {
    fn of(lateness: &Lateness) -> Option<Self> {
        (lateness.frames() > 0).then(|| Self {
            frames: lateness.frames(),
            largest_ns: lateness.max.0,
            bound_ns: lateness::bound(lateness).map(|bound| bound.0),
        })
    }

    /// Reads it; `None` as long as no frame has waited.
    pub(in crate::command) fn read(live: &mut Live) -> Result<Option<Self>, HostError> {
        let lateness = live.lateness()?;
        Ok(lateness.as_ref().and_then(Self::of))
    }

    /// Returns it as a line.
    pub(in crate::command) fn text(&self) -> String {
        let (largest, frames) = (Nanos(self.largest_ns), self.frames);
        let bound = match self.bound_ns {
            Some(bound) => format!("J = {} with a margin", Nanos(bound)),
            None => format!("J is known after {}", lateness::WARM),
        };
        format!("this host: frames leave at most {largest} late ({frames} frames); {bound}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_warm_has_no_bound() {
        let mut row = LatenessRow {
            frames: 40_000,
            largest_ns: 12_600,
            bound_ns: Some(32_600),
        };
        let text = row.text();
        assert!(
            text.ends_with("12.6us late (40000 frames); J = 32.6us with a margin\n"),
            "{text}"
        );
        row.bound_ns = None;
        assert!(
            row.text().ends_with("J is known after 10000\n"),
            "{}",
            row.text()
        );
    }
}
