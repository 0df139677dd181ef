//! An output port: queues, and the link behind them.

use super::{Frame, Node, Time};
use std::collections::VecDeque;
use tailbound_units::exact::{BYTE_IN_PICOS, Carry};
use tailbound_units::{Bytes, Nanos, Rate};

/// How many classes a port tells apart: traffic with guarantees (0), and best
/// effort (1) below it.
pub const CLASSES: usize = 2;

/// How long frames take on a link: exact over any number of frames.
///
/// A frame's end is told rounded down to a picosecond, and what was cut off goes
/// to the next one of the same busy period. So a link is never slower than its
/// rate, and ahead of it by less than a picosecond, however long it runs. Where
/// the rate [is whole](Self::is_whole) nothing is ever cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    rate: u64,
    /// Picoseconds a byte takes, where that is whole.
    whole: Option<u64>,
    /// When the last frame ends,
    free: Time,
    /// and what was cut off of that.
    rest: Carry,
}

impl Wire {
    /// A link of this rate; no frame is longer than 1 MB.
    ///
    /// # Panics
    /// The rate is zero.
    pub fn new(rate: Rate) -> Self {
        assert!(rate.0 > 0, "a link has a rate");
        Self {
            rate: rate.0,
            whole: Self::is_whole(rate).then(|| BYTE_IN_PICOS / rate.0),
            free: Time::ZERO,
            rest: Carry::NONE,
        }
    }

    /// Whether a byte takes a whole number of picoseconds at this rate.
    pub const fn is_whole(rate: Rate) -> bool {
        rate.0 > 0 && BYTE_IN_PICOS.is_multiple_of(rate.0)
    }

    /// Sends a frame as soon as the link is free, not before `now`. Returns when
    /// its last bit has left.
    pub fn send(&mut self, now: Time, size: Bytes) -> Time {
        if now > self.free {
            self.free = now;
            self.rest = Carry::NONE;
        }
        self.free = self.free
            + Time(if let Some(whole) = self.whole {
                size.0 * whole
            } else {
                self.rest.divide(size.0, BYTE_IN_PICOS, self.rate)
            });
        self.free
    }

    /// What the link sends in this time, in picobits.
    fn sends_in(self, time: Time) -> u128 {
        u128::from(time.0) * u128::from(self.rate)
    }
}

/// What a port is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Of the link.
    pub rate: Rate,
    /// How long every frame is on its way through the switch before it can be
    /// sent; it is in the queue's memory meanwhile.
    pub latency: Nanos,
    /// How long the last bit is on the link.
    pub propagation: Nanos,
    /// How much of each class can be held; without a limit if none. A byte
    /// needs no room once it is sent.
    pub buffer: [Option<Bytes>; CLASSES],
}

/// What was lost at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// Frames,
    pub frames: u64,
    /// and their bytes.
    pub bytes: Bytes,
}

/// What happened at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames sent, a class each.
    pub sent: [u64; CLASSES],
    /// Frames lost because the buffer was full.
    pub dropped: [Drops; CLASSES],
    /// The most of each class that was there at one time, waiting and not yet
    /// sent, in picobits (10^-12 bit).
    pub peak: [u128; CLASSES],
    /// The same for all classes together.
    pub peak_of_all: u128,
}

/// An output port. Of several classes the lowest number goes first, a frame on
/// the wire is not interrupted, and each class is first in, first out.
#[derive(Debug, Clone)]
pub struct Port {
    config: PortConfig,
    latency: Time,
    propagation: Time,
    wire: Wire,
    /// On their way through the switch, and when they are there.
    entering: VecDeque<(Time, Frame)>,
    queues: [VecDeque<Frame>; CLASSES],
    /// What entering and queued frames hold.
    waiting: [u64; CLASSES],
    /// On the wire, and when its last bit leaves.
    sending: Option<(Time, Frame)>,
    /// Between the two ends of the link, and when the last bit arrives.
    flying: VecDeque<(Time, Frame)>,
    stats: PortStats,
}

impl Port {
    /// An idle port.
    pub fn new(config: PortConfig) -> Self {
        Self {
            config,
            latency: config.latency.into(),
            propagation: config.propagation.into(),
            wire: Wire::new(config.rate),
            entering: VecDeque::new(),
            queues: [const { VecDeque::new() }; CLASSES],
            waiting: [0; CLASSES],
            sending: None,
            flying: VecDeque::new(),
            stats: PortStats::default(),
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> &PortStats {
        &self.stats
    }

    /// What is here and not yet sent, in picobits.
    fn backlog(&self, now: Time) -> [u128; CLASSES] {
        let mut backlog = self
            .waiting
            .map(|bytes| u128::from(bytes) * u128::from(BYTE_IN_PICOS));
        if let Some((end, frame)) = &self.sending {
            backlog[usize::from(frame.class)] += self.wire.sends_in(end.since(now));
        }
        backlog
    }

    /// Starts the next frame if there is one.
    fn start(&mut self, now: Time) {
        for (class, queue) in self.queues.iter_mut().enumerate() {
            if let Some(frame) = queue.pop_front() {
                self.waiting[class] -= frame.size.0;
                self.sending = Some((self.wire.send(now, frame.size), frame));
                return;
            }
        }
    }
}

fn take_due(queue: &mut VecDeque<(Time, Frame)>, now: Time) -> Option<Frame> {
    let due = queue.front().is_some_and(|entry| entry.0 <= now);
    due.then(|| queue.pop_front())
        .flatten()
        .map(|entry| entry.1)
}

impl Node for Port {
    fn poll_at(&self) -> Time {
        let first =
            |queue: &VecDeque<(Time, Frame)>| queue.front().map_or(Time::NEVER, |entry| entry.0);
        let sending = self.sending.as_ref().map_or(Time::NEVER, |entry| entry.0);
        sending.min(first(&self.entering)).min(first(&self.flying))
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Frame>) {
        if let Some((end, frame)) = self.sending
            && end <= now
        {
            self.sending = None;
            self.stats.sent[usize::from(frame.class)] += 1;
            if self.propagation > Time::ZERO {
                self.flying.push_back((end + self.propagation, frame));
            } else {
                out.push(frame);
            }
        }
        while let Some(frame) = take_due(&mut self.flying, now) {
            out.push(frame);
        }
        while let Some(frame) = take_due(&mut self.entering, now) {
            self.queues[usize::from(frame.class)].push_back(frame);
        }
        if self.sending.is_none() {
            self.start(now);
        }
    }

    fn receive(&mut self, now: Time, frame: Frame, _: &mut Vec<Frame>) {
        let class = usize::from(frame.class);
        let size = u128::from(frame.size.0) * u128::from(BYTE_IN_PICOS);
        let mut backlog = self.backlog(now);
        backlog[class] += size;
        if let Some(buffer) = self.config.buffer[class]
            && backlog[class] > u128::from(buffer.0) * u128::from(BYTE_IN_PICOS)
        {
            self.stats.dropped[class].frames += 1;
            self.stats.dropped[class].bytes += frame.size;
            return;
        }
        self.stats.peak[class] = self.stats.peak[class].max(backlog[class]);
        self.stats.peak_of_all = self.stats.peak_of_all.max(backlog.iter().sum());
        self.waiting[class] += frame.size.0;
        if self.latency > Time::ZERO {
            self.entering.push_back((now + self.latency, frame));
        } else {
            self.queues[class].push_back(frame);
            // What ends right now is polled for after this.
            if self.sending.is_none() {
                self.start(now);
            }
        }
    }
}
