//! Frames that wait until the caller takes them, in order. A caller takes each before it adds the
//! next in nearly all cases, so one place precedes a queue.

use super::delayed::Delayed;
use super::table::Place;
use std::collections::VecDeque;

/// Frames in the order in which they were added, and the last one if it is not made yet.
#[derive(Debug)]
pub(super) struct Outbox<F> {
    /// The first frame, or none while `later` is not empty after it was taken.
    first: Option<F>,
    later: VecDeque<F>,
    delayed: Option<Delayed>,
}

impl<F> Outbox<F> {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            later: VecDeque::new(),
            delayed: None,
        }
    }

    /// The acknowledgement that is not made yet.
    #[inline]
    pub(super) const fn delayed_mut(&mut self) -> Option<&mut Delayed> {
        self.delayed.as_mut()
    }

    /// Delays an acknowledgement. None may be delayed.
    #[inline]
    pub(super) fn delay(&mut self, delayed: Delayed) {
        debug_assert!(self.delayed.is_none(), "one would be lost");
        self.delayed = Some(delayed);
    }

    /// Removes the acknowledgement that is not made yet; the caller then adds it as a frame.
    #[inline]
    pub(super) const fn take_delayed(&mut self) -> Option<Delayed> {
        self.delayed.take()
    }

    /// The place of the connection whose acknowledgement is not made yet.
    #[inline]
    pub(super) fn delayed_place(&self) -> Option<Place> {
        self.delayed.as_ref().map(Delayed::place)
    }

    #[inline]
    pub(super) fn push(&mut self, frame: F) {
        if self.has_no_frame() {
            self.first = Some(frame);
        } else {
            self.later.push_back(frame);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<F> {
        self.first.take().or_else(|| self.later.pop_front())
    }

    /// Checks that there is no frame, and none to be made.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.has_no_frame() && self.delayed.is_none()
    }

    #[inline]
    fn has_no_frame(&self) -> bool {
        self.first.is_none() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_leave_in_the_order_in_which_they_were_added(
            steps in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            let (mut outbox, mut model) = (Outbox::new(), VecDeque::new());
            for (number, adds) in steps.into_iter().enumerate() {
                if adds {
                    outbox.push(number);
                    model.push_back(number);
                } else {
                    prop_assert_eq!(outbox.pop(), model.pop_front());
                }
                prop_assert_eq!(outbox.is_empty(), model.is_empty());
            }
        }
    }
}
