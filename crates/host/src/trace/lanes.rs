//! Tracks for overlapping waits: slices of one track must not overlap.

/// Tracks for slices, each with the end of its last slice.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<u64>);

/// Largest number of parallel waits; a screen shows fewer.
const MAX_PARALLEL_WAITS: usize = 256;

impl Lanes {
    /// Returns the first track that is free from `from` to `until`. Calls must be in the order of
    /// `from`. Returns `None` for too many parallel waits.
    pub(super) fn place(&mut self, from: u64, until: u64) -> Option<usize> {
        let free = self.0.iter().position(|end| *end <= from);
        let lane = match free {
            Some(lane) => lane,
            None if self.0.len() < MAX_PARALLEL_WAITS => {
                self.0.push(0);
                self.0.len() - 1
            }
            None => return None,
        };
        self.0[lane] = until;
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_two_slices_of_a_track_overlap_and_there_are_as_many_tracks_as_are_needed(
            mut slices in prop::collection::vec((0_u64..1_000, 0_u64..50), 1..200),
        ) {
            slices.sort_unstable();
            let mut lanes = Lanes::default();
            let mut placed: Vec<(usize, u64, u64)> = Vec::new();
            for (from, long) in slices {
                let lane = lanes.place(from, from + long).expect("there is room");
                for (other, _, end) in &placed {
                    prop_assert!(*other != lane || *end <= from);
                }
                placed.push((lane, from, from + long));
                let at_once = placed.iter().filter(|(_, _, end)| *end > from).count().max(1);
                prop_assert!(lane < placed.len().min(200));
                prop_assert!(lanes.0.len() <= placed.len());
                prop_assert!(at_once <= lanes.0.len());
            }
        }
    }

    #[test]
    fn too_many_at_once_are_left_out() {
        let mut lanes = Lanes::default();
        for lane in 0..MAX_PARALLEL_WAITS {
            assert_eq!(lanes.place(0, 10), Some(lane));
        }
        assert_eq!(lanes.place(5, 10), None);
        assert_eq!(lanes.place(10, 11), Some(0));
    }
}
