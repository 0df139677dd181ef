//! The state of one connection.

pub(super) mod record;
#[cfg(test)]
mod tests;

use super::config::SnoopConfig;
use super::frame::{Link, Origin};
use super::mode::{Bar, Mode, Pause};
use super::reach::Reach;
use super::segment::{Flags, Options, Segment, Timestamps};
use super::seq::Seq;
use super::store::Chain;
use tailbound_units::Nanos;

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The guest has sent SYN.
    Opening,
    /// The peer has answered the SYN.
    Greeted,
    /// The guest has sent SYN-ACK, and no segment since.
    Answered,
    /// The guest has sent a segment since the handshake.
    Open,
    /// Both ends have closed and acknowledged the other's FIN.
    Closed,
    /// The connection existed before; its state is unknown.
    Foreign,
}

/// Congestion feedback that the ends agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ecn {
    /// None, or the classic echo (RFC 3168).
    Classic,
    /// The classic echo, with a mark that the peer has not confirmed yet.
    Marked,
    /// Counters (RFC 9768); the value is the guest's last one.
    Accurate(Counter),
}

/// The counter of congestion in a segment's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counter(u8);

impl Counter {
    pub(super) const fn of(flags: Flags) -> Self {
        Self((flags.only(Flags::ACE).0 >> SHIFT) as u8)
    }

    const fn flags(self) -> Flags {
        Flags((self.0 as u16) << SHIFT)
    }
}

/// Position of the counter among the flags.
const SHIFT: u32 = Flags::ACE.0.trailing_zeros();

/// Converts a time to ticks of this module's timers, each about a millisecond.
pub(super) const fn ticks(at: Nanos) -> u64 {
    at.0 >> TICK
}

/// Bits of a time within one tick.
pub(super) const TICK: u32 = 20;

/// Ends that have sent their last byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Closing {
    pub(super) guest: bool,
    pub(super) peer: bool,
    /// The peer's FIN is retained, with or behind withheld bytes.
    pub(super) held: bool,
}

/// Present counting of a connection: the index of its mode, and [`CountState::OWES`].
#[derive(Debug, Clone, Copy)]
pub(super) struct CountState(u8);

impl CountState {
    /// Counted among the connections that owe.
    const OWES: u8 = 0x80;

    /// Index of the mode.
    #[inline]
    pub(super) const fn mode(self) -> usize {
        (self.0 & !Self::OWES) as usize
    }

    /// Sets the mode.
    pub(super) const fn set_mode(&mut self, index: usize) {
        self.0 = self.0 & Self::OWES | index as u8;
    }

    /// Sets whether the connection counts among those that owe; returns the previous value.
    #[inline]
    pub(super) const fn replace_owes(&mut self, owes: bool) -> bool {
        let had = self.0 & Self::OWES != 0;
        self.0 = self.0 & !Self::OWES | if owes { Self::OWES } else { 0 };
        had
    }
}

/// Positions in the peer's bytes, in order: `vm` ≤ `sent` ≤ `next`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Positions {
    /// The end of the bytes that the guest has acknowledged.
    pub(super) vm: Seq,
    /// The end of the bytes that were sent to the guest.
    pub(super) sent: Seq,
    /// The end of the bytes that were acknowledged to the peer.
    pub(super) next: Seq,
    /// The end of the bytes that the guest may have, in or out of order.
    pub(super) high: Seq,
    /// The end of the last retransmission to the guest; `vm` once the guest has it.
    pub(super) recover: Seq,
}

/// Windows for the peer's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// The right edge of the window that the guest advertised.
    pub(super) edge: Seq,
    /// The right edge that the peer was shown.
    pub(super) shown: Seq,
    /// The window in early acknowledgements, in bytes, which grows (III-C).
    pub(super) window: u32,
    /// The largest payload of a segment on the wire.
    pub(super) mss: u16,
    /// The window field of the peer's last segment.
    pub(super) peer_window: u16,
}

/// Positions in the guest's bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reply {
    /// The end of the bytes that the guest has sent.
    pub(super) guest_next: Seq,
    /// The end of the bytes that the peer has acknowledged.
    pub(super) peer_ack: Seq,
}

/// Acknowledgements that went to the peer.
#[derive(Debug, Clone, Copy, Default)]
struct Answered {
    /// The acknowledgement number of the guest's last empty segment.
    ack: Seq,
    /// The window field of that segment.
    field: u16,
    /// Time of the last repeated acknowledgement; 0: none.
    repeated_at: u16,
}

/// The last timestamps (RFC 7323).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamps {
    /// The timestamp of the peer's last segment in order (`TS.Recent`).
    pub(super) peer: u32,
    /// The guest's last timestamp.
    pub(super) guest: u32,
}

/// Times of the retransmission to the guest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resend {
    /// The next retransmission, in [`ticks`]; 0: none.
    due: u32,
    /// The connection's entry in [`Timers`](super::Timers); 0: none.
    pub(super) queued: u32,
}

/// Losses between the host and the guest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// Retransmissions without progress.
    pub(super) resends: u8,
    pub(super) duplicates: u8,
    /// True if the host has ever retransmitted to the guest.
    pub(super) resent: bool,
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) mode: Mode,
    pub(super) stage: Stage,
    pub(super) ecn: Ecn,
    pub(super) closing: Closing,
}

/// Properties of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// The guest's window scale.
    pub(super) scale: u8,
    /// True if segments have timestamps.
    pub(super) stamped: bool,
    /// True if the guest owes an answer: its next segment goes to the peer in any case.
    pub(super) solicited: bool,
    pub(super) counted: CountState,
    /// Limit with which unacknowledged bytes were placed beyond the guest's right edge, if any
    /// were.
    pub(super) ahead: Option<Reach>,
}

/// The state of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) data: Positions,
    pub(super) windows: Windows,
    pub(super) reply: Reply,
    answered: Answered,
    pub(super) stamps: Stamps,
    pub(super) chain: Chain,
    pub(super) timer: Resend,
    pub(super) losses: Losses,
    pub(super) link: Link,
    pub(super) origin: Origin,
    pub(super) state: State,
    pub(super) marks: Marks,
}

impl Flow {
    pub(super) fn new(stage: Stage, mode: Mode, link: Link, origin: Origin) -> Self {
        Self {
            data: Positions::default(),
            windows: Windows {
                edge: Seq(0),
                shown: Seq(0),
                window: 0,
                mss: 536,
                peer_window: 0,
            },
            reply: Reply::default(),
            answered: Answered::default(),
            stamps: Stamps::default(),
            chain: Chain::default(),
            timer: Resend::default(),
            losses: Losses::default(),
            link,
            origin,
            state: State {
                mode,
                stage,
                ecn: Ecn::Classic,
                closing: Closing::default(),
            },
            marks: Marks {
                scale: 0,
                stamped: false,
                solicited: false,
                counted: CountState(mode.index() as u8),
                ahead: None,
            },
        }
    }

    /// Reads a part of each of its cache lines.
    #[inline]
    pub(super) const fn part(&self) -> u32 {
        self.data.vm.0 ^ self.stamps.peer ^ self.timer.due ^ self.link.tag ^ self.chain.part()
    }

    /// Sets the begin of the peer's bytes, by the guest's acknowledgement.
    pub(super) fn start(&mut self, at: Seq, window: u32, config: &SnoopConfig) {
        (self.data.vm, self.data.sent, self.data.next, self.data.high) = (at, at, at, at);
        self.data.recover = at;
        // The guest acknowledges no number before its beginning.
        self.answered.ack = at - 1;
        self.windows.edge = at + window;
        self.windows.shown = self.windows.edge;
        self.windows.window = window.min(config.window.0 as u32);
    }

    /// Raises the window that the peer is shown to at most `most` after a segment arrived;
    /// `largest` is the payload of its largest part on the wire (III-C).
    #[inline]
    pub(super) fn grow(&mut self, largest: u16, most: u32) {
        self.windows.mss = self.windows.mss.max(largest);
        let window = self
            .windows
            .window
            .saturating_add(2 * u32::from(self.windows.mss));
        self.windows.window = window.min(most);
    }

    /// Checks for bytes that the peer has an acknowledgement for and the guest has not
    /// acknowledged.
    #[inline]
    pub(super) const fn owes(&self) -> bool {
        self.data.vm.is_before(self.data.next)
    }

    /// Checks for bytes that wait for the guest's window.
    #[inline]
    pub(super) const fn withholds(&self) -> bool {
        self.data.sent.is_before(self.data.next)
    }

    /// Checks whether the guest's last window has room for a full segment.
    #[inline]
    const fn has_room(&self) -> bool {
        self.windows.edge.is_after(self.data.vm)
            && self.windows.edge.since(self.data.vm) >= self.windows.mss as u32
    }

    /// Checks whether the next segment, which the host retains and which ends at `end`, may be
    /// placed beyond the guest's right edge: a guest's window opens as it takes segments. False if
    /// the window is closed, or if bytes that the guest dropped are queued.
    #[inline]
    pub(super) const fn may_place_ahead(&self, end: Seq, reach: Reach) -> bool {
        !self.withholds() && self.has_room() && end.since(self.data.vm) <= reach.most()
    }

    /// Records that bytes up to `end` were placed, if this is beyond the guest's right edge.
    #[inline]
    pub(super) const fn note_placed(&mut self, end: Seq, reach: Reach) {
        if end.is_after(self.windows.edge) {
            self.marks.ahead = Some(reach);
        }
    }

    /// Records that the guest lost a segment. Returns whether it may have been placed beyond the
    /// right edge under `reach`.
    pub(super) fn note_lost(&mut self, reach: Reach) -> bool {
        self.marks.ahead.take() == Some(reach)
    }

    /// Checks for retained bytes that were placed beyond the guest's right edge.
    #[inline]
    pub(super) const fn is_ahead(&self) -> bool {
        self.data.sent.is_after(self.windows.edge) && !self.chain.is_empty()
    }

    /// Checks whether the guest drops segments beyond its right edge: its window is full, or it
    /// repeats its last acknowledgement (`repeats`), as for dropped segments. Frames are never
    /// reordered between the host and the guest.
    #[inline]
    pub(super) const fn drops_ahead(&self, repeats: bool) -> bool {
        self.is_ahead() && (repeats || !self.has_room())
    }

    /// Records the peer's FIN in order; `held`: the guest has not received it yet.
    pub(super) fn close_peer(&mut self, held: bool) {
        self.state.closing.peer = true;
        self.state.closing.held = held;
        self.pause(Pause::Closing);
    }

    /// Withholds again all bytes that were placed and not acknowledged.
    pub(super) const fn rewind(&mut self) {
        self.data.sent = self.data.vm;
        self.data.recover = self.data.vm;
        self.losses.resent = true;
    }

    /// Turns early acknowledgement off for good, unless it is off already.
    pub(super) fn bar(&mut self, bar: Bar) {
        if !matches!(self.state.mode, Mode::Off(_)) {
            self.state.mode = Mode::Off(bar);
        }
    }

    /// Turns early acknowledgement off for now.
    pub(super) fn pause(&mut self, pause: Pause) {
        if !matches!(self.state.mode, Mode::Off(_)) {
            self.state.mode = Mode::Offline(pause);
        }
    }

    pub(super) fn bar_by(&mut self, options: &Options) {
        if let Some(exotic) = options.exotic {
            self.bar(Bar::Option(exotic));
        }
    }

    /// Records the timestamp of a segment of the peer (RFC 7323, 4.3), if it is not older.
    pub(super) const fn note_stamp(&mut self, stamps: Timestamps) {
        if !self.is_older(stamps) {
            self.stamps.peer = stamps.value;
        }
    }

    /// Checks whether a timestamp of the peer is older than its last.
    pub(super) const fn is_older(&self, stamps: Timestamps) -> bool {
        Seq(stamps.value).is_before(Seq(self.stamps.peer))
    }

    /// Returns the reason in the header why a segment that is next in order is not acknowledged
    /// early; `None` without one. `expected` is the begin of the next segment.
    #[inline]
    pub(super) fn objection(&self, segment: &Segment, expected: Seq) -> Option<Pause> {
        let &Segment { flags, ack, .. } = segment;
        if flags.has(Flags::URG) {
            return Some(Pause::Urgent);
        }
        if self.state.closing.peer {
            return Some(Pause::Closing);
        }
        if segment.congestion || self.state.ecn == Ecn::Marked {
            return Some(Pause::Congestion);
        }
        let stamps = segment.options.timestamps;
        if stamps.is_some() != self.marks.stamped
            || stamps.is_some_and(|stamps| self.is_older(stamps))
        {
            return Some(Pause::Timestamp);
        }
        // RFC 5961, 5.2, with the window in the segment as the largest ever.
        let is_old = ack.is_before(self.reply.peer_ack)
            && self.reply.peer_ack.since(ack) > u32::from(segment.window);
        if !flags.has(Flags::ACK) || ack.is_after(self.reply.guest_next) || is_old {
            return Some(Pause::Acknowledgement);
        }
        if self.data.high.is_after(expected) {
            return Some(Pause::Hole);
        }
        None
    }

    /// Shows the peer a window of `wanted` bytes behind `ack`, without moving its right edge back.
    /// Returns the field.
    #[inline]
    pub(super) fn show(&mut self, ack: Seq, wanted: u32) -> u16 {
        let promised = if self.windows.shown.is_after(ack) {
            self.windows.shown.since(ack)
        } else {
            0
        };
        // Rounds down to `wanted`, and up to the promise: a field counts in steps.
        let unit = (1_u32 << self.marks.scale) - 1;
        let field = (wanted >> self.marks.scale).max((promised + unit) >> self.marks.scale);
        let field = field.min(u16::MAX.into());
        self.windows.shown = self.windows.shown.latest(ack + (field << self.marks.scale));
        field as u16
    }

    /// The timestamps of segments that the host sends in the guest's name, with this echo.
    #[inline]
    pub(super) fn stamps_to_peer(&self, echo: u32) -> Option<Timestamps> {
        self.marks.stamped.then_some(Timestamps {
            value: self.stamps.guest,
            echo,
        })
    }

    /// The timestamps of segments that the host sends in the peer's name.
    pub(super) fn stamps_to_guest(&self) -> Option<Timestamps> {
        self.marks.stamped.then_some(Timestamps {
            value: self.stamps.peer,
            echo: self.stamps.guest,
        })
    }

    /// The guest's last counter of congestion.
    #[inline]
    pub(super) const fn counter(&self) -> Flags {
        match self.state.ecn {
            Ecn::Accurate(counter) => counter.flags(),
            Ecn::Classic | Ecn::Marked => Flags(0),
        }
    }

    /// Checks whether the guest's last empty segment had these fields.
    #[inline]
    pub(super) fn has_passed(&self, ack: Seq, field: u16) -> bool {
        self.answered.ack == ack && self.answered.field == field
    }

    /// Records the fields of an empty segment of the guest.
    #[inline]
    pub(super) const fn note_passed(&mut self, ack: Seq, field: u16) {
        self.answered.ack = ack;
        self.answered.field = field;
    }

    /// Checks whether an acknowledgement to the peer may be repeated now, and if so, records the
    /// time.
    pub(super) const fn may_repeat(&mut self, now: Nanos) -> bool {
        // Never 0, which means none.
        let at = ticks(now) as u16 | 1;
        let pause = ticks(SnoopConfig::REPEAT) as u16;
        let may =
            self.answered.repeated_at == 0 || at.wrapping_sub(self.answered.repeated_at) > pause;
        if may {
            self.answered.repeated_at = at;
        }
        may
    }

    /// Allows the next repetition at any time. Called before the 16-bit clock of repetitions wraps,
    /// after 69 s.
    pub(super) const fn forget_repeat(&mut self) {
        self.answered.repeated_at = 0;
    }

    /// Pause before the next retransmission to the guest.
    #[inline]
    pub(super) fn resend_after(&self) -> Nanos {
        let pause = SnoopConfig::FIRST_RESEND.0 << self.losses.resends.min(16);
        Nanos(pause).min(SnoopConfig::LAST_RESEND)
    }

    /// Time of the next retransmission to the guest in ticks, at most a month away; `None` if none
    /// is due.
    #[inline]
    pub(super) fn deadline(&self, now: Nanos) -> Option<u64> {
        let now = ticks(now);
        let left = self.timer.due.wrapping_sub(now as u32).cast_signed();
        (self.timer.due != 0).then(|| now.wrapping_add_signed(left.into()))
    }

    /// Sets the time of the next retransmission to a pause after `now`, and returns it in ticks.
    #[inline]
    pub(super) fn set_deadline(&mut self, now: Nanos) -> u64 {
        self.set_deadline_at(ticks(now + self.resend_after()) + 1)
    }

    const fn set_deadline_at(&mut self, at: u64) -> u64 {
        // Never 0, which means none.
        let at = at + (at as u32 == 0) as u64;
        self.timer.due = at as u32;
        at
    }

    /// Cancels retransmission, because the guest has acknowledged all bytes.
    #[inline]
    pub(super) const fn clear_deadline(&mut self) {
        self.timer.due = 0;
    }
}
