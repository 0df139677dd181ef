//! Detection of a full queue before the place of a capture.

use tailbound_units::{Bytes, Nanos, Rate};

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(1);
/// Fewest windows in a row of a plateau.
const LEAST_ROW: usize = 10;
/// A window belongs to a plateau if it has at least this many percent of the fullest one.
const LEAST_PERCENT: u64 = 97;

/// A time in which frames passed at a constant rate, the highest of the recording: behind a full
/// queue, or behind a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plateau {
    /// The constant rate.
    pub rate: Rate,
    /// Sum of such times.
    pub time: Nanos,
    /// Part of the frames that passed in these times, from 0 to 1.
    pub share: f64,
}

/// Counts the bytes of one link and direction in windows of a millisecond.
#[derive(Debug, Clone, Default)]
pub struct PlateauDetector {
    /// Number, bytes and frames of windows that are not empty.
    windows: Vec<(u64, Bytes, u64)>,
}

impl PlateauDetector {
    /// Adds a frame, not before the last one.
    pub fn add(&mut self, at: Nanos, wire: Bytes) {
        let number = at.0 / WINDOW.0;
        match self.windows.last_mut() {
            Some((last, bytes, frames)) if *last >= number => {
                *bytes += wire;
                *frames += 1;
            }
            _ => self.windows.push((number, wire, 1)),
        }
    }

    /// Returns the plateau, if there is one of at least ten milliseconds.
    pub fn plateau(&self) -> Option<Plateau> {
        let most = self.windows.iter().map(|(_, bytes, _)| bytes.0).max()?;
        let is_full = |window: &&(u64, Bytes, u64)| window.1.0 * 100 >= most * LEAST_PERCENT;
        let full: Vec<_> = self.windows.iter().filter(is_full).collect();
        let rows = full.chunk_by(|one, other| other.0 == one.0 + 1);
        let (mut windows, mut within) = (0, 0);
        for row in rows.filter(|row| row.len() >= LEAST_ROW) {
            windows += row.len() as u64;
            within += row.iter().map(|(_, _, frames)| frames).sum::<u64>();
        }
        let frames: u64 = self.windows.iter().map(|(_, _, frames)| frames).sum();
        (windows > 0).then(|| Plateau {
            rate: Rate(most.saturating_mul(8_000)),
            time: Nanos(windows * WINDOW.0),
            share: within as f64 / frames as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,538 B frames at a gap for a time, in nanoseconds.
    fn frames(detector: &mut PlateauDetector, from: u64, until: u64, gap: u64) {
        for at in (from..until).step_by(gap as usize) {
            detector.add(Nanos(at), Bytes(1_538));
        }
    }

    #[test]
    fn a_full_queue_is_a_row_of_equal_windows() {
        // 1 Gbit/s for 50 ms, then a tenth of it.
        let mut detector = PlateauDetector::default();
        frames(&mut detector, 0, 50_000_000, 12_304);
        frames(&mut detector, 50_000_000, 1_000_000_000, 123_040);
        let plateau = detector.plateau().unwrap();
        assert!(
            (0.99e9..1.01e9).contains(&(plateau.rate.0 as f64)),
            "{plateau:?}"
        );
        assert_eq!(plateau.time, Nanos::from_millis(50));
        assert!((0.3..0.4).contains(&plateau.share), "{plateau:?}");
    }

    #[test]
    fn short_bursts_and_uneven_traffic_are_no_full_queue() {
        let mut detector = PlateauDetector::default();
        for number in 0..100 {
            let from = number * 10_000_000;
            frames(&mut detector, from, from + 5_000_000, 12_304);
        }
        assert_eq!(detector.plateau(), None);
        assert_eq!(PlateauDetector::default().plateau(), None);
        let mut uneven = PlateauDetector::default();
        for number in 0..1_000 {
            let gap = 12_304 + 1_000 * (number % 7);
            frames(
                &mut uneven,
                number * 1_000_000,
                (number + 1) * 1_000_000,
                gap,
            );
        }
        assert_eq!(uneven.plateau(), None);
    }
}
