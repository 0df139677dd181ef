//! The queues of switches for the marks of frames.

use tailbound_dataplane::{Class, Classes, Fabric};
use tailbound_placement::DelayClassSpec;

/// The queue of each mark at a switch, the one that is served first being 0: the delay classes in
/// their order, the ordinary guaranteed class, and all other traffic. Without delay classes these
/// are [`super::packet::FIRST`] and [`super::packet::LAST`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Priorities {
    /// PCPs of the delay classes and of the ordinary guaranteed class.
    guaranteed: Vec<u8>,
}

impl Priorities {
    /// Returns the queues of a fabric that serves guarantees first, with these delay classes.
    pub(super) fn new(delay_classes: &[DelayClassSpec]) -> Self {
        let ordinary = Classes::of(Fabric::GuaranteesFirst).mark(Class::Guaranteed);
        let marks = delay_classes.iter().map(|class| class.mark);
        Self {
            guaranteed: marks.chain([ordinary]).map(|mark| mark.pcp).collect(),
        }
    }

    /// Returns the queue of a frame with this PCP.
    pub(super) fn queue(&self, pcp: u8) -> u8 {
        let place = self.guaranteed.iter().position(|it| *it == pcp);
        place.unwrap_or(self.guaranteed.len()) as u8
    }

    /// Returns whether frames in this queue have a guarantee.
    pub(super) fn is_guaranteed(&self, queue: u8) -> bool {
        usize::from(queue) < self.guaranteed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{FIRST, LAST};
    use super::*;
    use tailbound_dataplane::Mark;
    use tailbound_units::Nanos;

    #[test]
    fn marks_have_queues_in_the_order_of_their_classes() {
        let of = |class| Classes::of(Fabric::GuaranteesFirst).mark(class).pcp;
        let (ordinary, lowest) = (of(Class::Guaranteed), of(Class::Lowest));
        let none = Priorities::new(&[]);
        assert_eq!((none.queue(ordinary), none.queue(lowest)), (FIRST, LAST));
        let class = |pcp| DelayClassSpec {
            queue: Nanos::from_micros(50),
            mark: Mark { dscp: 8 * pcp, pcp },
        };
        let two = Priorities::new(&[class(7), class(6)]);
        assert_eq!(
            [7, 6, ordinary, lowest].map(|pcp| two.queue(pcp)),
            [0, 1, 2, 3]
        );
        assert_eq!([2, 3].map(|queue| two.is_guaranteed(queue)), [true, false]);
    }
}
