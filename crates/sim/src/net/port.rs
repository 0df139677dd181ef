//! An output port: queues, and the link behind them.

use super::{Frame, Node, Time};
use std::collections::VecDeque;
use tailbound_units::exact::{BYTE_IN_PICOS, Carry};
use tailbound_units::{Bytes, Nanos, Rate};

/// Number of classes of a port: traffic with guarantees (0), and best effort (1) below it.
pub const CLASSES: usize = 2;

/// Times of frames on a link: exact over any number of frames.
///
/// The end of a frame is rounded down to a picosecond, and the remainder is added to the next frame
/// of the same busy period. A link is therefore never slower than its rate, and ahead of it by less
/// than a picosecond, however long it runs. If the rate [is whole](Self::is_whole) there is no
/// remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    rate: u64,
    /// Picoseconds a byte takes, if that is a whole number.
    whole: Option<u64>,
    /// End of the last frame.
    free: Time,
    /// Remainder of that end.
    rest: Carry,
}

impl Wire {
    /// Returns a link of this rate; no frame is longer than 1 MB.
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

    /// True if a byte takes a whole number of picoseconds at this rate.
    pub const fn is_whole(rate: Rate) -> bool {
        rate.0 > 0 && BYTE_IN_PICOS.is_multiple_of(rate.0)
    }

    /// Sends a frame as soon as the link is free, not before `now`. Returns the time at which its
    /// last bit has left.
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

    /// Number of picobits that the link sends in this time.
    fn sends_in(self, time: Time) -> u128 {
        u128::from(time.0) * u128::from(self.rate)
    }
}

/// Configuration of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Rate of the link.
    pub rate: Rate,
    /// Time of every frame in the switch before it can be sent; it is in the queue's memory
    /// meanwhile.
    pub latency: Nanos,
    /// Time of the last bit on the link.
    pub propagation: Nanos,
    /// Buffer of each class; unlimited if `None`. A byte needs no buffer once it is sent.
    pub buffer: [Option<Bytes>; CLASSES],
}

/// Frames that a port dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// Number of frames.
    pub frames: u64,
    /// Sum of their lengths.
    pub bytes: Bytes,
}

/// Statistics of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Number of sent frames, by class.
    pub sent: [u64; CLASSES],
    /// Frames that were dropped because the buffer was full, by class.
    pub dropped: [Drops; CLASSES],
    /// Largest backlog of each class, waiting and not yet sent, in picobits (10^-12 bit).
    pub peak: [u128; CLASSES],
    /// Largest backlog of all classes together, in picobits.
    pub peak_of_all: u128,
}

/// An output port. The class with the lowest number is served first, a frame on the wire is not
/// interrupted, and each class is first in, first out.
#[derive(Debug, Clone)]
pub struct Port {
    config: PortConfig,
    latency: Time,
    propagation: Time,
    wire: Wire,
    /// Frames in the switch, with the times at which they can be sent.
    entering: VecDeque<(Time, Frame)>,
    queues: [VecDeque<Frame>; CLASSES],
    /// Bytes of entering and queued frames.
    waiting: [u64; CLASSES],
    /// Frame on the wire, with the time at which its last bit leaves.
    sending: Option<(Time, Frame)>,
    /// Frames on the link, with the times at which their last bits arrive.
    flying: VecDeque<(Time, Frame)>,
    stats: PortStats,
}

impl Port {
    /// Returns an idle port.
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

    /// Statistics of the port.
    pub fn stats(&self) -> &PortStats {
        &self.stats
    }

    /// Backlog: data that is here and not yet sent, in picobits.
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
            // A frame that ends now is handled by a later poll.
            if self.sending.is_none() {
                self.start(now);
            }
        }
    }
}
