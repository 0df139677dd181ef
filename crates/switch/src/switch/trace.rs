//! The frames of one guest, one by one: when each began to wait, was let go, and was taken by a
//! port.
//!
//! Nothing is kept but while somebody wants it, and then of so many frames at most. The times are
//! those of the turns in which something was done, which are all that is known here.

use super::Switch;
use crate::forward::PortIndex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;
use tailbound_dataplane::{Class, Frame, GuestId, Leaving, Packet};
use tailbound_units::Nanos;

/// What a frame waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// For its guest's limit. What it waits for after that is told apart.
    Limit,
    /// To leave by the uplink.
    Uplink,
    /// In the pacer, to go to another guest of this host.
    Local,
    /// Before the port of another guest of this host.
    Port,
    /// To come to its guest.
    Inward,
}

/// What is known of one frame's wait. Times are on the clock of [`Switch::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedFrame {
    /// What it waited for.
    pub wait: Wait,
    /// The class in which it travels.
    pub class: Class,
    /// Its bytes without FCS: those of a packet that is not cut yet, where that waited.
    pub bytes: u32,
    /// Whom it went to, or came from; `None` where it is not IP.
    pub peer: Option<IpAddr>,
    /// When it began to wait.
    pub enqueued: Nanos,
    /// When it was let go.
    pub released: Nanos,
    /// When it begins on the wire, as the pacer has it; `None` without one.
    pub begins: Option<Nanos>,
    /// When the port took it, or lost it; `None` where it had not by the end, and where it
    /// goes to no port.
    pub taken: Option<Nanos>,
}

/// What was traced.
#[derive(Debug, Default)]
pub struct Traced {
    /// Waits, in the order in which they ended.
    pub frames: Vec<TracedFrame>,
    /// Those for which there was no room.
    pub missed: u64,
}

/// A trace that is being made.
#[derive(Debug)]
pub(super) struct Trace {
    guest: GuestId,
    most: usize,
    traced: Traced,
    /// Frames that a port has not taken yet: the port, the frame's place among all that the port
    /// was ever offered, and where it is in `traced`. Those of one port in order.
    offered: VecDeque<(PortIndex, u64, usize)>,
}

/// A frame as it is let go, and where it goes.
#[derive(Clone, Copy)]
pub(super) struct Released<'f> {
    pub(super) frame: &'f Packet,
    pub(super) wait: Wait,
    pub(super) waited: Nanos,
    /// How a pacer sends it.
    pub(super) leaving: Option<&'f Leaving>,
    /// The port that it goes to at once, and its place there ([`Trace::offered`]).
    pub(super) offered: Option<(PortIndex, u64)>,
}

impl<'f> Released<'f> {
    /// Of a frame that goes on here, to no port.
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
    /// Notes a frame that is let go, where it is one of the guest's.
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

    /// A port has taken all that it was offered before that place.
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

    /// What a port was offered is lost.
    #[cold]
    pub(super) fn forget(&mut self, port: PortIndex) {
        self.offered.retain(|(at, ..)| *at != port);
    }
}

impl Switch {
    /// Traces the frames of a guest from now on: those that it sends, and those that come for
    /// it, `most` at most. A trace that is under way ends with what it has.
    pub fn begin_trace(&mut self, guest: GuestId, most: usize) {
        self.trace = Some(Box::new(Trace {
            guest,
            most,
            // At once: nothing of it is copied while packets wait.
            traced: Traced {
                frames: Vec::with_capacity(most),
                missed: 0,
            },
            offered: VecDeque::new(),
        }));
    }

    /// Whether a trace has all the frames that it has room for.
    pub fn is_trace_full(&self) -> bool {
        let trace = self.trace.as_ref();
        trace.is_some_and(|trace| trace.traced.frames.len() >= trace.most)
    }

    /// Ends the trace that is under way, and returns it.
    pub fn end_trace(&mut self) -> Option<Traced> {
        Some(self.trace.take()?.traced)
    }

    /// Notes a frame that leaves a queue for the port behind it.
    pub(super) fn trace_queued(
        &mut self,
        now: Nanos,
        index: PortIndex,
        frame: &Packet,
        waited: Nanos,
    ) {
        let state = &self.states[index.0];
        let offered = Some((index, state.place()));
        let guest = index.0.checked_sub(self.first_guest());
        let guest = guest.map(|guest| self.guests[guest].id);
        let Some(trace) = &mut self.trace else {
            return;
        };
        let wait = match guest {
            None => Wait::Uplink,
            Some(guest) if guest == trace.guest => Wait::Inward,
            Some(_) => Wait::Port,
        };
        trace.note(
            now,
            Released {
                frame,
                wait,
                waited,
                leaving: None,
                offered,
            },
        );
    }
}
