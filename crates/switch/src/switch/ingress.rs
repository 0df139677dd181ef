//! Whether a guest's port is read.

use std::collections::VecDeque;
use tailbound_dataplane::Packet;
use tailbound_dataplane::pacer::WouldBlock;
use tailbound_units::Nanos;

/// Whether a guest's port is read. Where it is not, its queue fills, and the guest
/// notices.
#[derive(Debug)]
pub(super) struct Ingress {
    state: State,
    /// The queue of the last backpressure, empty: so that the next allocates nothing.
    spare: VecDeque<Packet>,
}

#[derive(Debug)]
enum State {
    /// It is read.
    Open,
    /// The uplink did not take the guest's frames: they are offered again at
    /// `retry_at`, in order, before anything else is read. A burst at most, since that
    /// is all that was read.
    Backpressured {
        retry_at: Nanos,
        frames: VecDeque<Packet>,
        /// Its last burst met a full queue as well, so a higher rate is no reason to
        /// try earlier.
        throttled: bool,
    },
    /// Frames of its last burst were dropped, for want of room or as they may not be
    /// sent: the next ones stay where they cost little.
    Throttled { until: Nanos },
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            state: State::Open,
            spare: VecDeque::new(),
        }
    }
}

impl Ingress {
    /// The port is read.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Frames that wait to be offered again.
    pub(super) fn backlog(&self) -> usize {
        match &self.state {
            State::Backpressured { frames, .. } => frames.len(),
            State::Open | State::Throttled { .. } => 0,
        }
    }

    /// When there is something to do; `None` while the port is read.
    pub(super) const fn poll_at(&self) -> Option<Nanos> {
        match self.state {
            State::Open => None,
            State::Backpressured { retry_at, .. } => Some(retry_at),
            State::Throttled { until } => Some(until),
        }
    }

    /// Puts `frame` behind those that wait, so that it overtakes none; returns it
    /// where none waits.
    pub(super) fn queue_behind(&mut self, frame: Packet) -> Option<Packet> {
        if let State::Backpressured { frames, .. } = &mut self.state {
            frames.push_back(frame);
            return None;
        }
        Some(frame)
    }

    /// The uplink did not take a frame that was read just now.
    pub(super) fn block(&mut self, blocked: WouldBlock<Packet>) {
        debug_assert_eq!(self.backlog(), 0, "it would overtake those that wait");
        let mut frames = std::mem::take(&mut self.spare);
        frames.push_back(blocked.frame);
        self.state = State::Backpressured {
            retry_at: blocked.retry_at,
            frames,
            throttled: matches!(self.state, State::Throttled { .. }),
        };
    }

    /// The uplink did not take the frame that [`Ingress::next_due`] returned.
    pub(super) fn block_again(&mut self, blocked: WouldBlock<Packet>) {
        debug_assert!(matches!(self.state, State::Backpressured { .. }));
        if let State::Backpressured {
            retry_at, frames, ..
        } = &mut self.state
        {
            frames.push_front(blocked.frame);
            *retry_at = blocked.retry_at;
        }
    }

    /// The next frame that is to be offered again at `now`. Where there is none left,
    /// and no throttling, the port is read again.
    pub(super) fn next_due(&mut self, now: Nanos) -> Option<Packet> {
        if self.poll_at().is_none_or(|at| at > now) {
            return None;
        }
        if let State::Backpressured {
            frames, throttled, ..
        } = &mut self.state
        {
            *throttled = false;
            if let Some(frame) = frames.pop_front() {
                return Some(frame);
            }
        }
        self.open();
        None
    }

    /// Leaves the port unread until then, or until what waits is taken.
    pub(super) fn throttle(&mut self, until: Nanos) {
        match &mut self.state {
            State::Backpressured { throttled, .. } => *throttled = true,
            State::Open | State::Throttled { .. } => self.state = State::Throttled { until },
        }
    }

    /// Offers what waits again in the next turn, unless the port is throttled.
    pub(super) fn expedite(&mut self) {
        if let State::Backpressured {
            retry_at,
            throttled: false,
            ..
        } = &mut self.state
        {
            *retry_at = Nanos::ZERO;
        }
    }

    /// Drops what waits, and reads the port again; returns how many frames it was.
    pub(super) fn clear(&mut self) -> u64 {
        let dropped = self.backlog() as u64;
        self.open();
        dropped
    }

    fn open(&mut self) {
        let before = std::mem::replace(&mut self.state, State::Open);
        if let State::Backpressured { mut frames, .. } = before {
            frames.clear();
            self.spare = frames;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frames::{A4, B4, MAC_A, MAC_B, ethernet, ipv4, packet, udp};

    fn frame(n: u8) -> Packet {
        let bytes = ethernet(MAC_B, MAC_A, 0x0800, &ipv4(A4, B4, 17, &udp(1, 2, &[n])));
        packet(&bytes, None).expect("well formed")
    }

    fn number(frame: &Packet) -> u8 {
        frame.bytes()[42]
    }

    fn blocked(n: u8, at: u64) -> WouldBlock<Packet> {
        WouldBlock {
            frame: frame(n),
            retry_at: Nanos(at),
        }
    }

    #[test]
    fn frames_are_offered_again_in_order_and_then_the_port_is_read() {
        let mut ingress = Ingress::default();
        assert!(ingress.is_open());
        assert!(ingress.queue_behind(frame(0)).is_some(), "nothing waits");
        ingress.block(blocked(0, 10));
        assert!(ingress.queue_behind(frame(1)).is_none());
        assert_eq!((ingress.backlog(), ingress.poll_at()), (2, Some(Nanos(10))));
        assert!(ingress.next_due(Nanos(9)).is_none());
        let first = ingress.next_due(Nanos(10)).expect("it is due");
        assert_eq!(number(&first), 0);
        ingress.block_again(blocked(0, 20));
        assert!(ingress.next_due(Nanos(19)).is_none());
        let order: Vec<_> = std::iter::from_fn(|| ingress.next_due(Nanos(20)))
            .map(|frame| number(&frame))
            .collect();
        assert_eq!(order, [0, 1]);
        assert!(ingress.is_open());
    }

    #[test]
    fn a_throttled_port_is_read_again_in_time_and_not_before() {
        let mut ingress = Ingress::default();
        ingress.throttle(Nanos(5));
        ingress.expedite();
        assert!(ingress.next_due(Nanos(4)).is_none());
        assert!(!ingress.is_open());
        assert!(ingress.next_due(Nanos(5)).is_none());
        assert!(ingress.is_open());
    }

    #[test]
    fn a_higher_rate_expedites_what_waits_but_for_a_throttled_guest() {
        let mut ingress = Ingress::default();
        ingress.block(blocked(0, 10));
        ingress.throttle(Nanos(99));
        ingress.expedite();
        assert_eq!(ingress.poll_at(), Some(Nanos(10)), "throttled");
        assert!(ingress.next_due(Nanos(10)).is_some());
        ingress.block_again(blocked(0, 20));
        ingress.expedite();
        assert_eq!(ingress.poll_at(), Some(Nanos::ZERO));
        assert_eq!(ingress.clear(), 1);
        assert!(ingress.is_open());
    }
}
