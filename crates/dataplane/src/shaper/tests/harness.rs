//! A guest with a ring of 256 frames before a shaper, in virtual time.

use crate::shaper::{Shaper, ShaperConfig};
use crate::{Control, Frame, PacketRecord};
use std::collections::VecDeque;
use tailbound_units::Nanos;

/// Frames that wait in the guest.
const RING: usize = 256;

/// A frame that the guest sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestFrame {
    pub(super) at: Nanos,
    pub(super) len: usize,
    pub(super) port: u16,
    pub(super) control: Option<Control>,
}

impl GuestFrame {
    pub(super) const fn data(at: Nanos, len: usize) -> Self {
        Self {
            at,
            len,
            port: 0,
            control: None,
        }
    }
}

/// A frame that left.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReleasedFrame {
    pub(super) id: u64,
    pub(super) len: usize,
    /// Time at which the guest sent the frame.
    pub(super) sent: Nanos,
    pub(super) at: Nanos,
}

pub(super) struct Bench {
    pub(super) shaper: Shaper<PacketRecord>,
    pub(super) ring: VecDeque<PacketRecord>,
    pub(super) left: Vec<ReleasedFrame>,
    pub(super) lost: u64,
    sent: u64,
}

impl Bench {
    pub(super) fn new(config: &ShaperConfig) -> Self {
        Self {
            shaper: Shaper::new(config).expect("sound"),
            ring: VecDeque::new(),
            left: Vec::new(),
            lost: 0,
            sent: 0,
        }
    }

    /// Runs the guest and the shaper until `end`.
    pub(super) fn run(&mut self, frames: impl IntoIterator<Item = GuestFrame>, end: Nanos) {
        let mut frames = frames.into_iter().peekable();
        loop {
            let next = frames.peek().map(|frame| frame.at);
            let times = [next, self.shaper.poll_at()];
            let Some(now) = times.into_iter().flatten().min().filter(|at| *at < end) else {
                return;
            };
            while let Some(frame) = frames.next_if(|frame| frame.at <= now) {
                self.send(frame);
            }
            self.turn(now);
        }
    }

    fn send(&mut self, frame: GuestFrame) {
        if self.ring.len() == RING {
            self.lost += 1;
            return;
        }
        self.ring.push_back(PacketRecord {
            id: self.sent,
            came: frame.at,
            port: frame.port,
            control: frame.control,
            ..PacketRecord::new(frame.len)
        });
        self.sent += 1;
    }

    pub(super) fn turn(&mut self, now: Nanos) {
        loop {
            while self.shaper.is_read()
                && let Some(frame) = self.ring.pop_front()
            {
                self.shaper.push(now, frame);
            }
            let before = self.left.len();
            while let Some(queued) = self.shaper.pull(now) {
                self.left.push(ReleasedFrame {
                    id: queued.frame.id,
                    len: queued.frame.len(),
                    sent: queued.frame.came,
                    at: now,
                });
            }
            if self.left.len() == before || self.ring.is_empty() {
                return;
            }
        }
    }

    /// The bytes that left in each second.
    pub(super) fn seconds(&self) -> Vec<u64> {
        let mut seconds = Vec::new();
        for left in &self.left {
            let second = (left.at.0 / 1_000_000_000) as usize;
            seconds.resize(seconds.len().max(second + 1), 0);
            seconds[second] += left.len as u64;
        }
        seconds
    }

    /// The most bytes that left in any second, wherever it begins.
    pub(super) fn worst_second(&self) -> u64 {
        let (mut first, mut sum, mut worst) = (0, 0, 0);
        for left in &self.left {
            sum += left.len as u64;
            while left.at.since(self.left[first].at) > Nanos::from_secs(1) {
                sum -= self.left[first].len as u64;
                first += 1;
            }
            worst = worst.max(sum);
        }
        worst
    }
}

/// Frames of one length at constant intervals, from one moment until before another.
pub(super) fn constant(
    len: usize,
    rate: f64,
    (from, to): (Nanos, Nanos),
) -> impl Iterator<Item = GuestFrame> {
    let gap = len as f64 * 8e9 / rate;
    (0..)
        .map(move |i| from + Nanos((f64::from(i) * gap) as u64))
        .take_while(move |at| *at < to)
        .map(move |at| GuestFrame::data(at, len))
}
