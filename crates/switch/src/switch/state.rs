//! State of every port, the uplink's and a guest's.

use super::floods::Floods;
use super::share::Share;
use super::timing::Stopwatch;
use super::wakes::Wakes;
use super::work::Cost;
use crate::port::{BURST, Outgoing, Port, Received, TransmitResult};
use crate::reason::Reason;
use std::collections::VecDeque;
use std::io;
use tailbound_dataplane::{Frame, Packet};
use tailbound_units::Nanos;

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

#[derive(Debug, Clone)]
pub(super) struct Counters {
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
    pub(super) voids: Traffic,
    drops: [u64; Reason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: Traffic::default(),
            sent: Traffic::default(),
            voids: Traffic::default(),
            drops: [0; Reason::ALL.len()],
        }
    }
}

impl Counters {
    pub(super) fn drop(&mut self, reason: Reason, count: u64) {
        self.drops[reason.index()] += count;
    }

    /// Returns the dropped frames for each reason.
    pub(super) fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let reasons = Reason::ALL.iter();
        reasons.map(|reason| (reason.label(), self.drops[reason.index()]))
    }
}

/// Events to wait for at a port with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Something to receive.
    pub receive: bool,
    /// Room to transmit: the port was full when it was last offered a frame.
    pub transmit: bool,
}

/// Frames from a port on their way into the switch.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Received frames that are not forwarded yet: a burst at most.
    pub(super) frames: VecDeque<Received>,
    /// Frames from the port to all others, which are being copied.
    pub(super) floods: Floods,
    /// The share for forwarding frames from the port.
    pub(super) share: Share,
    /// The port may have something to receive.
    pub(super) readable: bool,
    /// Wake-ups by the port for nothing.
    pub(super) wakes: Wakes,
}

/// Frames on their way out of a port.
#[derive(Debug)]
pub(super) struct Outbound {
    /// Frames that the port has not taken yet.
    pub(super) frames: VecDeque<Outgoing>,
    /// The number of frames and voids that the port has taken or lost so far.
    taken: u64,
    /// The share for putting frames into the port, beyond the charge to their senders.
    pub(super) share: Share,
    /// The port had no room when it was last offered a frame.
    pub(super) full: bool,
    /// The port stalled the thread, and is left alone until then.
    pub(super) barred_until: Nanos,
    /// The longest frame that the port carries, at the last query; 0 before.
    pub(super) longest: usize,
}

/// State of every port, the uplink's and a guest's.
#[derive(Debug)]
pub(super) struct PortState {
    pub(super) name: String,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// The events that the caller was last asked to wait for.
    pub(super) interest: Interest,
    /// Bytes of the guest's memory that are charged to this process, at the last query.
    pub(super) borrowed: u64,
    pub(super) counters: Counters,
}

impl PortState {
    /// Makes the state of a port that is not open yet ([`super::Switch::handle_opened`]).
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            inbound: Inbound {
                frames: VecDeque::with_capacity(BURST),
                floods: Floods::default(),
                share: Share::default(),
                readable: false,
                wakes: Wakes::default(),
            },
            outbound: Outbound {
                frames: VecDeque::with_capacity(BURST),
                taken: 0,
                share: Share::default(),
                full: false,
                barred_until: Nanos::ZERO,
                longest: 0,
            },
            interest: Interest {
                receive: true,
                transmit: false,
            },
            borrowed: 0,
            counters: Counters::default(),
        }
    }

    /// Returns true if the port can carry a frame. The kernel would refuse a longer one after it
    /// waited and was charged. Packets that will be segmented always pass.
    pub(super) fn fits(&mut self, packet: &Packet, port: Option<&dyn Port>) -> bool {
        if packet.len() <= self.outbound.longest {
            return true;
        }
        let tag = if packet.vlan().is_some() {
            Packet::TAG
        } else {
            0
        };
        let len = packet.len() - tag;
        if len <= self.outbound.longest || packet.offload().gso.is_some() {
            return true;
        }
        // Not known yet, or another one by now.
        let Some(port) = port else {
            return true;
        };
        self.outbound.longest = port.longest().unwrap_or(usize::MAX);
        let fits = len <= self.outbound.longest;
        if !fits {
            self.counters.drop(Reason::AboveMtu, 1);
        }
        fits
    }

    /// Returns true if frames of the last burst are not forwarded yet.
    pub(super) fn has_received(&self) -> bool {
        !self.inbound.frames.is_empty()
    }

    /// Returns the number of frames and voids that the port has taken or lost so far.
    pub(super) const fn taken(&self) -> u64 {
        self.outbound.taken
    }

    /// Charges the port for a wake-up if it has nothing to do; returns the time until which it rests
    /// if these were too many.
    pub(super) fn charge_idle_wake(&mut self, now: Nanos) -> Option<Nanos> {
        // An event that was not waited for is the caller's own.
        let is_waited_for = self.interest.receive || self.interest.transmit;
        if !(self.inbound.wakes.is_woken() && is_waited_for) {
            return None;
        }
        self.inbound
            .wakes
            .charge(now, self.counters.received.packets + self.outbound.taken)
    }

    /// Returns the place of the next outgoing frame, among all that the port was ever offered.
    pub(super) fn place(&self) -> u64 {
        self.outbound.taken + self.outbound.frames.len() as u64
    }

    /// Returns the most frames that the port is offered in one burst.
    pub(super) fn most_at_once(&self) -> usize {
        self.outbound.share.max_frames()
    }

    /// Measures the time that `put` takes for its frames, and charges the port for the excess
    /// over their worth. Returns the result, and the port's rest if it stalled the thread.
    pub(super) fn measure_out<T>(
        &mut self,
        stopwatch: Option<&mut (dyn Stopwatch + 'static)>,
        put: impl FnOnce(&mut Self) -> T,
    ) -> (T, Nanos) {
        let (taken, bytes) = (self.outbound.taken, self.counters.sent.bytes);
        let measured = stopwatch.map(|it| (self.outbound.share.begin(it), it));
        let done = put(self);
        let Some((measurement, stopwatch)) = measured else {
            return (done, Nanos::ZERO);
        };
        let cost = Cost {
            frames: (self.outbound.taken - taken) as usize,
            bytes: (self.counters.sent.bytes - bytes) as usize,
            pieces: 0,
        };
        let rest = self.outbound.share.end_unpaid(measurement, stopwatch, cost);
        (done, rest)
    }

    /// Offers the outgoing frames to the port; returns what became of them.
    pub(super) fn transmit(&mut self, now: Nanos, port: &mut dyn Port) -> io::Result<Transmitted> {
        let offered = self.outbound.frames.len();
        let sent = port.transmit(now, &mut self.outbound.frames)?;
        self.outbound.taken += (offered - self.outbound.frames.len()) as u64;
        if sent.pieces > 0 {
            self.outbound.share.charge(Cost::of_pieces(sent.pieces));
        }
        self.counters.sent.packets += sent.packets;
        self.counters.sent.bytes += sent.bytes;
        self.counters.voids.packets += sent.voids;
        self.counters.voids.bytes += sent.void_bytes;
        let lost = sent.lost();
        if lost > 0 {
            self.count_losses(&sent);
        }
        self.outbound.full = sent.full;
        Ok(Transmitted {
            lost,
            is_full: sent.full,
            is_all: self.outbound.frames.is_empty(),
        })
    }
}

impl PortState {
    #[cold]
    fn count_losses(&mut self, sent: &TransmitResult) {
        for (reason, count) in sent.losses() {
            self.counters.drop(reason, count);
        }
    }
}

/// The result of offering frames to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transmitted {
    /// Frames that the port took and lost.
    pub(super) lost: u64,
    /// True if the port has no room for more.
    pub(super) is_full: bool,
    /// True if the port took or lost all offered frames.
    pub(super) is_all: bool,
}
