//! What is known of one connection.

pub(super) mod record;

use super::config::SnoopConfig;
use super::frame::{Link, Origin};
use super::mode::{Bar, Mode, Pause};
use super::reach::Reach;
use super::segment::{Flags, Options, Segment, Timestamps};
use super::seq::Seq;
use super::store::Chain;
use tailbound_units::Nanos;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The guest has sent SYN.
    Opening,
    /// The peer has answered that.
    Greeted,
    /// The guest has sent SYN-ACK, and nothing since.
    Answered,
    /// The guest has spoken since the handshake.
    Open,
    /// Both ends have closed, and know it of each other.
    Closed,
    /// It was there before, and nothing is known of it but that.
    Foreign,
}

/// What the ends agreed on for marks of congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ecn {
    /// Nothing, or the classic echo (RFC 3168).
    Classic,
    /// The classic echo, and a mark that the peer does not know of yet.
    Marked,
    /// Counters (RFC 9768); the guest's, as it sent it last.
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

/// Where the counter stands among the flags.
const SHIFT: u32 = Flags::ACE.0.trailing_zeros();

/// A moment as this module's timers count it: in about milliseconds.
pub(super) const fn ticks(at: Nanos) -> u64 {
    at.0 >> TICK
}

/// Bits of a time within one tick.
pub(super) const TICK: u32 = 20;

/// Which ends have sent their last byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Closing {
    pub(super) guest: bool,
    pub(super) peer: bool,
    /// The peer's FIN is kept, and with or behind bytes that are withheld.
    pub(super) held: bool,
}

/// What a connection is counted as: the index of its mode, and [`Counted::OWES`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted(u8);

impl Counted {
    /// It is among those that owe.
    const OWES: u8 = 0x80;

    /// In what mode.
    #[inline]
    pub(super) const fn mode(self) -> usize {
        (self.0 & !Self::OWES) as usize
    }

    /// Counts it in another mode.
    pub(super) const fn set_mode(&mut self, index: usize) {
        self.0 = self.0 & Self::OWES | index as u8;
    }

    /// Counts it among those that owe, or not; returns whether it was.
    #[inline]
    pub(super) const fn replace_owes(&mut self, owes: bool) -> bool {
        let had = self.0 & Self::OWES != 0;
        self.0 = self.0 & !Self::OWES | if owes { Self::OWES } else { 0 };
        had
    }
}

/// What is known of one connection. Numbers of the peer's bytes, in order:
/// `vm` (the guest has it up to there) ≤ `sent` (it was sent to the guest) ≤ `next` (the
/// peer was told so).
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) vm: Seq,
    pub(super) sent: Seq,
    pub(super) next: Seq,
    /// The end of what the guest may have in or out of order.
    pub(super) high: Seq,
    /// The right edge of the guest's window, as it said.
    pub(super) edge: Seq,
    /// The right edge that the peer was shown.
    pub(super) shown: Seq,
    /// The end of what the guest has sent.
    pub(super) guest_next: Seq,
    /// What the peer has acknowledged of it.
    pub(super) peer_ack: Seq,
    /// The end of what was last sent to the guest again; where it has that, `vm`.
    pub(super) recover: Seq,
    /// The number of the last empty acknowledgement of the guest that went to the peer.
    passed: Seq,
    /// The window that an early acknowledgement shows: it grows (III-C).
    pub(super) window: u32,
    /// The peer's timestamp of the last segment in order (`TS.Recent` of RFC 7323).
    pub(super) peer_stamp: u32,
    /// The guest's last timestamp.
    pub(super) guest_stamp: u32,
    pub(super) chain: Chain,
    /// When something is sent to the guest once more, in [`ticks`]; 0: never.
    deadline: u32,
    /// When it is looked at for that next; 0: not at all.
    pub(super) queued: u32,
    /// When the peer was last told again what was acknowledged; 0: never.
    repeated: u16,
    /// The field of its window.
    passed_field: u16,
    pub(super) link: Link,
    pub(super) origin: Origin,
    pub(super) peer_window: u16,
    pub(super) mss: u16,
    pub(super) scale: u8,
    pub(super) resends: u8,
    pub(super) duplicates: u8,
    pub(super) mode: Mode,
    pub(super) stage: Stage,
    pub(super) ecn: Ecn,
    pub(super) closing: Closing,
    /// By what some of what the guest has not acknowledged was placed beyond its right edge.
    pub(super) ahead: Option<Reach>,
    /// Segments have timestamps.
    pub(super) stamped: bool,
    /// The guest was asked something: its next word is for the peer, whatever it is.
    pub(super) solicited: bool,
    /// The guest was sent something twice, by the host.
    pub(super) resent: bool,
    pub(super) counted: Counted,
}

impl Flow {
    pub(super) fn new(stage: Stage, mode: Mode, link: Link, origin: Origin) -> Self {
        let start = Seq(0);
        Self {
            vm: start,
            sent: start,
            next: start,
            high: start,
            edge: start,
            shown: start,
            guest_next: start,
            peer_ack: start,
            recover: start,
            passed: start,
            passed_field: 0,
            counted: Counted(mode.index() as u8),
            window: 0,
            peer_stamp: 0,
            guest_stamp: 0,
            chain: Chain::default(),
            deadline: 0,
            queued: 0,
            repeated: 0,
            link,
            origin,
            peer_window: 0,
            mss: 536,
            scale: 0,
            resends: 0,
            duplicates: 0,
            mode,
            stage,
            ecn: Ecn::Classic,
            closing: Closing::default(),
            ahead: None,
            stamped: false,
            solicited: false,
            resent: false,
        }
    }

    /// Takes note of where the peer's bytes begin, by the guest's word for it.
    pub(super) fn start(&mut self, at: Seq, window: u32, config: &SnoopConfig) {
        (self.vm, self.sent, self.next, self.high) = (at, at, at, at);
        self.recover = at;
        // The guest says nothing from before its beginning.
        self.passed = at - 1;
        self.edge = at + window;
        self.shown = self.edge;
        self.window = window.min(config.window.0 as u32);
    }

    /// A segment came whose largest on the wire has so many bytes: the window that the peer is
    /// shown grows, to at most `most` (III-C).
    #[inline]
    pub(super) fn grow(&mut self, largest: u16, most: u32) {
        self.mss = self.mss.max(largest);
        let window = self.window.saturating_add(2 * u32::from(self.mss));
        self.window = window.min(most);
    }

    /// Whether the peer was told of bytes that the guest has not acknowledged.
    #[inline]
    pub(super) const fn owes(&self) -> bool {
        self.vm.is_before(self.next)
    }

    /// Whether bytes wait for the guest's window.
    #[inline]
    pub(super) const fn withholds(&self) -> bool {
        self.sent.is_before(self.next)
    }

    /// Whether the guest has room for a whole segment, by its last word.
    #[inline]
    const fn has_room(&self) -> bool {
        self.edge.is_after(self.vm) && self.edge.since(self.vm) >= self.mss as u32
    }

    /// Whether a segment that is next and ends at `end` may be placed beyond the right edge that
    /// the guest has shown, where the host keeps it: a guest's window opens as it takes what
    /// comes. Not where it is closed, nor before what the guest has dropped so.
    #[inline]
    pub(super) const fn may_place_ahead(&self, end: Seq, reach: Reach) -> bool {
        !self.withholds() && self.has_room() && end.since(self.vm) <= reach.most()
    }

    /// Notes that what ends at `end` is placed, where that is beyond the guest's right edge.
    #[inline]
    pub(super) const fn note_placed(&mut self, end: Seq, reach: Reach) {
        if end.is_after(self.edge) {
            self.ahead = Some(reach);
        }
    }

    /// Notes that the guest lost something; returns whether it may have been placed beyond its
    /// right edge, by `reach`.
    pub(super) fn note_lost(&mut self, reach: Reach) -> bool {
        self.ahead.take() == Some(reach)
    }

    /// Whether bytes that the host keeps were placed beyond the guest's right edge.
    #[inline]
    pub(super) const fn is_ahead(&self) -> bool {
        self.sent.is_after(self.edge) && !self.chain.is_empty()
    }

    /// Whether the guest drops what was placed beyond its right edge: it is full, or has
    /// said nothing else (`repeats`), which it does of what it drops. Nothing is reordered
    /// between the host and it.
    #[inline]
    pub(super) const fn drops_ahead(&self, repeats: bool) -> bool {
        self.is_ahead() && (repeats || !self.has_room())
    }

    /// The peer's FIN came in order; `held`: the guest is yet to get it.
    pub(super) fn close_peer(&mut self, held: bool) {
        self.closing.peer = true;
        self.closing.held = held;
        self.pause(Pause::Closing);
    }

    /// What was placed and not taken is withheld again.
    pub(super) const fn rewind(&mut self) {
        self.sent = self.vm;
        self.recover = self.vm;
        self.resent = true;
    }

    /// Off for good, unless it is so already.
    pub(super) fn bar(&mut self, bar: Bar) {
        if !matches!(self.mode, Mode::Off(_)) {
            self.mode = Mode::Off(bar);
        }
    }

    /// Offline for now.
    pub(super) fn pause(&mut self, pause: Pause) {
        if !matches!(self.mode, Mode::Off(_)) {
            self.mode = Mode::Offline(pause);
        }
    }

    pub(super) fn bar_by(&mut self, options: &Options) {
        if let Some(exotic) = options.exotic {
            self.bar(Bar::Option(exotic));
        }
    }

    /// The peer's timestamp of a segment counts (RFC 7323, 4.3), if it is not older.
    pub(super) const fn note_stamp(&mut self, stamps: Timestamps) {
        if !self.is_older(stamps) {
            self.peer_stamp = stamps.value;
        }
    }

    /// Whether a timestamp of the peer is older than its last.
    pub(super) const fn is_older(&self, stamps: Timestamps) -> bool {
        Seq(stamps.value).is_before(Seq(self.peer_stamp))
    }

    /// Why a segment that is next in order is not acknowledged early by what its header
    /// says; `None` where it may be. `expected`: where it begins.
    #[inline]
    pub(super) fn objection(&self, segment: &Segment, expected: Seq) -> Option<Pause> {
        let &Segment { flags, ack, .. } = segment;
        if flags.has(Flags::URG) {
            return Some(Pause::Urgent);
        }
        if self.closing.peer {
            return Some(Pause::Closing);
        }
        if segment.congestion || self.ecn == Ecn::Marked {
            return Some(Pause::Congestion);
        }
        let stamps = segment.options.timestamps;
        if stamps.is_some() != self.stamped || stamps.is_some_and(|stamps| self.is_older(stamps)) {
            return Some(Pause::Timestamp);
        }
        // RFC 5961, 5.2, with the window that the segment says for the largest ever.
        let is_old =
            ack.is_before(self.peer_ack) && self.peer_ack.since(ack) > u32::from(segment.window);
        if !flags.has(Flags::ACK) || ack.is_after(self.guest_next) || is_old {
            return Some(Pause::Acknowledgement);
        }
        if self.high.is_after(expected) {
            return Some(Pause::Hole);
        }
        None
    }

    /// Shows the peer a window of `wanted` bytes behind `ack`, but no right edge before the
    /// one that it was shown; returns the field.
    #[inline]
    pub(super) fn show(&mut self, ack: Seq, wanted: u32) -> u16 {
        let promised = if self.shown.is_after(ack) {
            self.shown.since(ack)
        } else {
            0
        };
        // Down to what is wanted, up to what was promised: a field counts in steps.
        let unit = (1_u32 << self.scale) - 1;
        let field = (wanted >> self.scale).max((promised + unit) >> self.scale);
        let field = field.min(u16::MAX.into());
        self.shown = self.shown.latest(ack + (field << self.scale));
        field as u16
    }

    /// The timestamps of what the host sends in the guest's place.
    #[inline]
    pub(super) fn stamps_to_peer(&self) -> Option<Timestamps> {
        self.stamped.then_some(Timestamps {
            value: self.guest_stamp,
            echo: self.peer_stamp,
        })
    }

    /// The timestamps of what the host sends in the peer's place.
    pub(super) fn stamps_to_guest(&self) -> Option<Timestamps> {
        self.stamped.then_some(Timestamps {
            value: self.peer_stamp,
            echo: self.guest_stamp,
        })
    }

    /// The counter of congestion that the guest sent last.
    #[inline]
    pub(super) const fn counter(&self) -> Flags {
        match self.ecn {
            Ecn::Accurate(counter) => counter.flags(),
            Ecn::Classic | Ecn::Marked => Flags(0),
        }
    }

    /// Whether the guest has said this last, alone.
    #[inline]
    pub(super) fn has_passed(&self, ack: Seq, field: u16) -> bool {
        self.passed == ack && self.passed_field == field
    }

    /// Notes what the guest said, alone.
    #[inline]
    pub(super) const fn note_passed(&mut self, ack: Seq, field: u16) {
        self.passed = ack;
        self.passed_field = field;
    }

    /// Whether the peer may be told again now; notes that it is.
    pub(super) const fn may_repeat(&mut self, now: Nanos) -> bool {
        // Never 0, which stands for never.
        let at = ticks(now) as u16 | 1;
        let pause = ticks(SnoopConfig::REPEAT) as u16;
        let may = self.repeated == 0 || at.wrapping_sub(self.repeated) > pause;
        if may {
            self.repeated = at;
        }
        may
    }

    /// Allows the next repetition at any time. Called before the clock of repetitions wraps, which
    /// takes 69 s.
    pub(super) const fn forget_repeat(&mut self) {
        self.repeated = 0;
    }

    /// The pause before something is sent to the guest once more.
    #[inline]
    pub(super) fn resend_after(&self) -> Nanos {
        let pause = SnoopConfig::FIRST_RESEND.0 << self.resends.min(16);
        Nanos(pause).min(SnoopConfig::LAST_RESEND)
    }

    /// When something is sent to the guest once more, in ticks, where that is at most a
    /// month off; `None` where nothing is owed.
    #[inline]
    pub(super) fn deadline(&self, now: Nanos) -> Option<u64> {
        let now = ticks(now);
        let left = self.deadline.wrapping_sub(now as u32).cast_signed();
        (self.deadline != 0).then(|| now.wrapping_add_signed(left.into()))
    }

    /// Sets that to be after a pause from now; returns it.
    #[inline]
    pub(super) fn set_deadline(&mut self, now: Nanos) -> u64 {
        self.set_deadline_at(ticks(now + self.resend_after()) + 1)
    }

    const fn set_deadline_at(&mut self, at: u64) -> u64 {
        // Never 0, which stands for never.
        let at = at + (at as u32 == 0) as u64;
        self.deadline = at as u32;
        at
    }

    /// Nothing is owed to the guest.
    #[inline]
    pub(super) const fn clear_deadline(&mut self) {
        self.deadline = 0;
    }
}
