//! Rate limit of a NIC's log lines, against guests and VMMs that violate the rules repeatedly.

use tailbound_units::Nanos;

/// Interval in which lines are counted.
const HOUR: Nanos = Nanos::from_secs(3600);

/// Permits a number of lines an hour, and counts the suppressed ones.
#[derive(Debug)]
pub(crate) struct Gate {
    most: u32,
    /// The begin of the hour, and the number of its lines.
    hour: Option<(Nanos, u32)>,
    held_back: u64,
}

impl Gate {
    /// One for `most` lines an hour.
    pub(crate) const fn new(most: u32) -> Self {
        Self {
            most,
            hour: None,
            held_back: 0,
        }
    }

    /// `Some` if a line may go into the log now, with the number of lines that were held back
    /// before it.
    pub(crate) fn pass(&mut self, now: Nanos) -> Option<u64> {
        let hour = self.hour.filter(|(begin, _)| now.since(*begin) < HOUR);
        let (begin, lines) = hour.unwrap_or((now, 0));
        if lines == self.most {
            self.held_back += 1;
            return None;
        }
        self.hour = Some((begin, lines + 1));
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_breaks_all_day_has_a_line_an_hour_with_the_number_of_the_others() {
        let mut gate = Gate::new(1);
        let lines: Vec<_> = (0..24 * 3600)
            .filter_map(|second| Some((second, gate.pass(Nanos::from_secs(second))?)))
            .collect();
        assert_eq!(lines.len(), 24);
        assert_eq!(lines[..2], [(0, 0), (3600, 3599)]);
    }

    #[test]
    fn lines_of_an_hour_are_counted_from_its_first() {
        let mut gate = Gate::new(2);
        let minutes = [10, 50, 60, 69, 70, 71, 72];
        let lines = minutes.map(|minute| gate.pass(Nanos::from_secs(60 * minute)));
        assert_eq!(
            lines,
            [Some(0), Some(0), None, None, Some(2), Some(0), None]
        );
    }
}
