//! Frames that wait until the caller takes them, in order. A caller takes each before it adds the
//! next in nearly all cases, so one place precedes a queue.

use std::collections::VecDeque;

/// Frames in the order in which they were added.
#[derive(Debug)]
pub(super) struct Outbox<F> {
    /// The first frame, or none while `later` is not empty after it was taken.
    first: Option<F>,
    later: VecDeque<F>,
}

impl<F> Outbox<F> {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            later: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, frame: F) {
        if self.is_empty() {
            self.first = Some(frame);
        } else {
            self.later.push_back(frame);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<F> {
        self.first.take().or_else(|| self.later.pop_front())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
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
