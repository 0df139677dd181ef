//! Trace of one guest's single frames: the times at which each was queued, released, and taken by a
//! port.
//!
//! Frames are recorded only during a trace, up to a maximum. The times are those of the turns, as
//! the switch knows no others.

use super::Switch;
use crate::index::PortIndex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;
use tailbound_dataplane::{Class, Frame, GuestId, Leaving, Packet};
use tailbound_units::Nanos;

/// The queue or the limit for which a frame waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// The guest's limit. The wait after that is a separate one.
    Limit,
    /// The uplink.
    Uplink,
    /// The pacer, on the way to another guest of this host.
    Local,
    /// The port of another guest of this host.
    Port,
    /// The guest's own port.
    Inward,
}

/// The wait of one frame. Times are on the clock of [`Switch::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedFrame {
    /// The queue or the limit.
    pub wait: Wait,
    /// The class in which it travels.
    pub class: Class,
    /// The frame's bytes without FCS; for a packet that waits before its segmentation, those of the
    /// packet.
    pub bytes: u32,
    /// The destination or the source; `None` if the frame is not IP.
    pub peer: Option<IpAddr>,
    /// The time at which the frame was queued.
    pub enqueued: Nanos,
    /// The time at which the frame was released.
    pub released: Nanos,
    /// The time at which the frame begins on the wire, by the pacer; `None` without a pacer.
    pub begins: Option<Nanos>,
    /// The time at which the port took the frame or lost it; `None` if the trace ended before, and
    /// for a frame to no port.
    pub taken: Option<Nanos>,
}

/// The result of a trace.
#[derive(Debug, Default)]
pub struct Traced {
    /// Waits, in the order in which they ended.
    pub frames: Vec<TracedFrame>,
    /// The number of frames for which there was no room.
    pub missed: u64,
}

/// A trace in progress.
#[derive(Debug)]
pub(super) struct Trace {
    guest: GuestId,
    most: usize,
    traced: Traced,
    /// Frames that a port has not taken yet: the port, the frame's place among all that the port
    /// was ever offered, and its index in `traced`. Frames of one port are in order.
    offered: VecDeque<(PortIndex, u64, usize)>,
}

/// A frame at its release, with its destination.
#[derive(Clone, Copy)]
pub(super) struct Released<'f> {
    pub(super) frame: &'f Packet,
    pub(super) wait: Wait,
    pub(super) waited: Nanos,
    /// The pacer's decision on the frame.
    pub(super) leaving: Option<&'f Leaving>,
    /// The port that the frame goes to next, and its place there ([`Trace::offered`]).
    pub(super) offered: Option<(PortIndex, u64)>,
}

impl<'f> Released<'f> {
    /// Makes the release of a frame that continues in the switch, to no port.
    pub(super) const fn within(frame: &'f Packet, wait: Wait, waited: Nanos) -> Self {
        Self {
            frame,
            wait,
            waited,
            leaving: None,
            offered: None,
        }
    }
}

impl Trace {
    /// Records the release of a frame, if it is one of the guest's.
    #[cold]
    pub(super) fn note(&mut self, now: Nanos, released: Released<'_>) {
        let Released {
            frame,
            wait,
            waited,
            leaving,
            offered,
        } = released;
        if wait != Wait::Inward && frame.source() != Some(self.guest) {
            return;
        }
        if self.traced.frames.len() >= self.most {
            self.traced.missed += 1;
            return;
        }
        if let Some((port, place)) = offered {
            let index = self.traced.frames.len();
            self.offered.push_back((port, place, index));
        }
        self.traced.frames.push(TracedFrame {
            wait,
            class: frame.class(),
            bytes: frame.len() as u32,
            peer: if wait == Wait::Inward {
                frame.ip_source()
            } else {
                frame.ip_destination()
            },
            enqueued: Nanos(now.0.saturating_sub(waited.0)),
            released: now,
            begins: leaving.map(Leaving::begins),
            taken: None,
        });
    }

    /// Returns the wait of a frame in the queue in front of a port: that of a guest, or the uplink's.
    pub(super) fn wait_at(&self, guest: Option<GuestId>) -> Wait {
        match guest {
            None => Wait::Uplink,
            Some(guest) if guest == self.guest => Wait::Inward,
            Some(_) => Wait::Port,
        }
    }

    /// Notes that a port has taken all frames before a place.
    #[cold]
    pub(super) fn note_taken(&mut self, now: Nanos, port: PortIndex, before: u64) {
        let frames = &mut self.traced.frames;
        self.offered.retain(|(at, place, index)| {
            let is_taken = *at == port && *place < before;
            if is_taken {
                frames[*index].taken = Some(now);
            }
            !is_taken
        });
    }

    /// Removes the frames that a port was offered, which are lost.
    #[cold]
    pub(super) fn forget(&mut self, port: PortIndex) {
        self.offered.retain(|(at, ..)| *at != port);
    }
}

impl Switch {
    /// Traces the frames of a guest from now on: those that it sends, and those to it, `most` at
    /// most. A trace in progress ends with its frames so far.
    pub fn begin_trace(&mut self, guest: GuestId, most: usize) {
        self.parts.transmitter.replace_trace(Some(Box::new(Trace {
            guest,
            most,
            // At once: nothing of it is copied while packets wait.
            traced: Traced {
                frames: Vec::with_capacity(most),
                missed: 0,
            },
            offered: VecDeque::new(),
        })));
    }

    /// Returns true if a trace has its maximum of frames.
    pub fn is_trace_full(&self) -> bool {
        let trace = self.parts.transmitter.trace();
        trace.is_some_and(|trace| trace.traced.frames.len() >= trace.most)
    }

    /// Ends the trace in progress, and returns it.
    pub fn end_trace(&mut self) -> Option<Traced> {
        Some(self.parts.transmitter.replace_trace(None)?.traced)
    }
}
