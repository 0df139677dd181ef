//! A queue whose memory follows its length.

use std::collections::VecDeque;

/// First in, first out. Queues of different ports are longest at different times: queues that kept
/// the memory of their longest time would hold ten times the memory of the frames.
#[derive(Debug, Clone)]
pub(super) struct Fifo<T>(VecDeque<T>);

/// Largest capacity of an empty queue, in items.
const EMPTY_CAPACITY: usize = 2;
/// Largest capacity of a short queue, in items.
const SHORT_CAPACITY: usize = 16;

/// Returns the capacity that is allocated for `len` items when a queue grows or shrinks.
const fn room_for(len: usize) -> usize {
    len + len / 4 + EMPTY_CAPACITY
}

/// Returns the largest capacity that is kept with `len` items.
const fn most_for(len: usize) -> usize {
    match len {
        0 => EMPTY_CAPACITY,
        1..SHORT_CAPACITY => SHORT_CAPACITY,
        _ => len + len.div_ceil(2) + EMPTY_CAPACITY,
    }
}

impl<T> Fifo<T> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.0.front()
    }

    pub(super) fn push(&mut self, it: T) {
        let len = self.0.len();
        if len == self.0.capacity() {
            self.0.reserve_exact(room_for(len) - len);
        }
        self.0.push_back(it);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let first = self.0.pop_front();
        let len = self.0.len();
        if self.0.capacity() > most_for(len) {
            self.0.shrink_to(room_for(len));
        }
        first
    }

    /// Allocated memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifo_keeps_order_and_bounds_its_memory() {
        let mut fifo = Fifo::new();
        let (mut pushed, mut popped) = (0_u32, 0);
        for (grows, to) in [(true, 5_000), (false, 40), (true, 300), (false, 0)] {
            while fifo.len() != to {
                if grows {
                    fifo.push(pushed);
                    pushed += 1;
                } else {
                    assert_eq!(fifo.front(), Some(&popped));
                    assert_eq!(fifo.pop(), Some(popped));
                    popped += 1;
                }
                let room = fifo.memory() / size_of::<u32>();
                let most = if fifo.len() == 0 {
                    4
                } else {
                    2 * fifo.len() + 16
                };
                assert!(room <= most, "{room} for {}", fifo.len());
            }
        }
        assert!(fifo.pop().is_none());
    }

    /// A queue that goes up and down by one allocates nothing.
    #[test]
    fn a_fifo_of_stable_length_allocates_no_memory() {
        let mut fifo = Fifo::new();
        (0..100).for_each(|it| fifo.push(it));
        fifo.push(100);
        let memory = fifo.memory();
        for _ in 0..1_000 {
            fifo.pop();
            fifo.push(0);
            assert_eq!(fifo.memory(), memory);
        }
    }
}
