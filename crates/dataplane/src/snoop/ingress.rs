//! Processes frames to the guest.

use super::delayed::make_delayed;
use super::flow::{Counter, Ecn, Flow, Stage};
use super::frame::{Change, Direction, Origin, TcpFrame};
use super::mode::{Bar, Mode, Pause};
use super::segment::{Flags, Segment};
use super::seq::Seq;
use super::table::Place;
use super::{Pending, Placing, RingPlacement, Snoop};
use tailbound_units::Nanos;

impl<F: TcpFrame> Snoop<F> {
    /// Reads the connections of the next frames to the guest, at most 64, into the CPU's caches:
    /// worth its time for more than [`CACHED`](super::SnoopConfig::CACHED) connections.
    /// [`Snoop::handle_ingress`] needs one after the other, and would wait for the memory each time.
    /// Changes nothing.
    pub fn load<'f>(&self, frames: impl IntoIterator<Item = &'f F>)
    where
        F: 'f,
    {
        let mut hashes = [0; 64];
        let mut count = 0;
        let found = frames.into_iter();
        let found = found.filter_map(|frame| frame.connection_hash(Direction::ToGuest));
        for (place, hash) in hashes.iter_mut().zip(found) {
            *place = hash;
            count += 1;
        }
        self.flows.load(&hashes[..count], Flow::part);
    }

    /// Processes a frame to the guest, behind every queue that may drop it. Returns the frame for
    /// the ring; `None` if the frame is queued or dropped.
    ///
    /// The caller reports the result of placing it ([`Snoop::handle_placed`]) before it passes in
    /// frames that the guest sent.
    #[inline]
    pub fn handle_ingress(&mut self, now: Nanos, frame: F) -> Option<F> {
        match self.take_next(now, frame) {
            Ok(next) => Some(next),
            Err(other) => self.take(now, other),
        }
    }

    /// Processes any frame to the guest.
    #[inline(never)]
    fn take(&mut self, now: Nanos, frame: F) -> Option<F> {
        make_delayed(self);
        let Some(sight) = frame.sight(Direction::ToGuest) else {
            return Some(frame);
        };
        let Some(place) = self.flows.find(&sight.flow, sight.hash) else {
            return Some(frame);
        };
        let flow = self.flows.get(place);
        let is_peer = flow.origin.allows(Origin::of(frame.source()));
        if flow.state.stage == Stage::Foreign || !is_peer {
            return Some(frame);
        }
        if self.flows.touch(now, place) {
            self.flows.get(place).forget_repeat();
        }
        let flow = self.flows.get(place);
        let Some(segment) = &sight.segment else {
            flow.pause(Pause::Unreadable);
            flow.marks.solicited = true;
            self.recount(place);
            return Some(frame);
        };
        // The guest ignores a damaged segment, and so does the host: any number or flag in it may
        // be wrong.
        if !frame.is_intact() {
            flow.pause(Pause::Checksum);
            self.recount(place);
            return Some(frame);
        }
        if segment.options.exotic.is_some() {
            flow.bar_by(&segment.options);
        }
        let is_empty = segment.payload == 0 && !segment.flags.has(Flags::FIN);
        let ends = segment.flags.has(Flags::SYN.with(Flags::RST));
        let passed = if is_empty || ends || is_early(flow) {
            Some(self.without_data(place, segment, frame))
        } else {
            self.note_peer(place, segment);
            let (segment, frame) = self.cut_known(place, *segment, frame);
            self.with_data(now, place, &segment, frame)
        };
        self.recount(place);
        passed
    }

    /// Reports the result of placing the frames that were returned since the last call. Retained
    /// segments that were lost are withheld until the guest acknowledges data.
    #[inline]
    pub fn handle_placed(&mut self, placed: RingPlacement) {
        make_delayed(self);
        // Retained segments that were not lost need no further action.
        if placed == RingPlacement::Lost || !self.is_retaining() {
            self.settle(placed);
        }
        self.pending.clear();
    }

    #[cold]
    fn settle(&mut self, placed: RingPlacement) {
        for index in 0..self.pending.len() {
            let Pending { place, bytes } = self.pending[index];
            match bytes {
                Placing::KeptFrom(_) if placed != RingPlacement::Lost => {}
                Placing::KeptFrom(seq) => {
                    let flow = self.flows.get(place);
                    flow.data.sent = flow.data.sent.earliest(seq.latest(flow.data.vm));
                    self.hold_fin(place);
                }
                Placing::UpTo(end) => self.placed_up_to(place, end, placed),
            }
        }
    }

    fn placed_up_to(&mut self, place: Place, end: Seq, placed: RingPlacement) {
        let flow = self.flows.get(place);
        if placed == RingPlacement::All {
            flow.data.next = end;
            flow.data.high = flow.data.high.latest(end);
            flow.state.mode = Mode::Active;
            let window = distance(flow.windows.edge, end);
            self.counts.stats.early += 1;
            self.acknowledge(place, window);
        } else {
            flow.data.high = flow.data.high.latest(flow.data.sent);
            flow.data.sent = flow.data.next;
            flow.pause(Pause::NoRoom);
        }
        self.recount(place);
    }

    /// Records the peer's own state from a segment that is plausible.
    fn note_peer(&mut self, place: Place, segment: &Segment) {
        let flow = self.flows.get(place);
        let &Segment { seq, ack, .. } = segment;
        if seq.is_after(flow.data.next) || segment.end().is_before(flow.data.vm) {
            return;
        }
        if segment.flags.has(Flags::ACK) && !ack.is_after(flow.reply.guest_next) {
            if !ack.is_before(flow.reply.peer_ack) {
                flow.reply.peer_ack = ack;
                flow.windows.peer_window = segment.window;
            }
            if let Some(stamps) = segment.options.timestamps {
                flow.note_stamp(stamps);
            }
        }
        if flow.state.closing.guest && flow.reply.peer_ack == flow.reply.guest_next {
            self.close_if_done(place);
        }
    }

    /// Records the end of the connection if an end has closed and the other has acknowledged it.
    pub(super) fn close_if_done(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let guest = flow.state.closing.guest && flow.reply.peer_ack == flow.reply.guest_next;
        let peer = flow.state.closing.peer
            && !flow.state.closing.held
            && !flow.data.high.is_after(flow.data.vm);
        if guest && peer && !flow.owes() {
            flow.state.stage = Stage::Closed;
            flow.pause(Pause::Closing);
        }
    }

    /// Processes a segment without payload and FIN, a SYN or RST, or one that arrives before the
    /// guest has acknowledged the peer's SYN.
    fn without_data(&mut self, place: Place, segment: &Segment, mut frame: F) -> F {
        let flow = self.flows.get(place);
        if segment.flags.has(Flags::SYN) {
            flow.marks.solicited = true;
            if flow.state.stage == Stage::Opening && segment.flags.has(Flags::ACK) {
                agree(flow, segment);
            }
            return frame;
        }
        if is_early(flow) {
            return frame;
        }
        if segment.flags.has(Flags::RST) {
            return self.reset_by_peer(place, segment, frame);
        }
        self.note_peer(place, segment);
        let flow = self.flows.get(place);
        note_reduction(flow, segment);
        if segment.seq != flow.data.next {
            flow.marks.solicited = true;
        }
        let is_next = segment.seq.is_after(flow.data.sent) && !segment.seq.is_after(flow.data.next);
        if flow.withholds() && is_next {
            // The guest would ignore a segment behind its window. One out of order stays out of
            // order: its timestamp must not become the guest's latest, which retained segments
            // carry.
            let before = distance(flow.data.next, segment.seq);
            let seq = flow.data.sent - before.min(1);
            rewrite_seq(&mut frame, segment, seq);
        }
        frame
    }

    /// Cuts acknowledged bytes off a segment that continues with the next byte in order. Peers send
    /// both in one segment when they retransmit; the rest is retained as any segment that is next.
    fn cut_known(&mut self, place: Place, mut segment: Segment, frame: F) -> (Segment, F) {
        let answers = self.is_retaining() && !self.draining;
        let flow = self.flows.get(place);
        let known = distance(flow.data.next, segment.seq);
        let goes_on = segment.bytes_end().is_after(flow.data.next)
            || (segment.end().is_after(flow.data.next) && !flow.state.closing.peer);
        if known == 0 || !goes_on || !answers || matches!(flow.state.mode, Mode::Off(_)) {
            return (segment, frame);
        }
        let rest = segment.payload - known;
        segment.seq = flow.data.next;
        segment.payload = rest;
        segment.largest = segment.largest.min(rest.min(u16::MAX.into()) as u16);
        (segment, frame.part(known, rest))
    }

    /// Processes a segment with payload or FIN in an open connection.
    fn with_data(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let (is_retaining, draining) = (self.is_retaining(), self.draining);
        let flow = self.flows.get(place);
        note_reduction(flow, segment);
        let end = segment.bytes_end();
        let is_last = segment.flags.has(Flags::FIN);
        // In strict mode, returned frames that are not placed yet count as placed.
        let expected = if is_retaining {
            flow.data.next
        } else {
            flow.data.sent
        };
        if !end.is_after(flow.data.next) && (!is_last || flow.state.closing.peer) {
            return self.old(now, place, segment, frame);
        }
        if segment.payload == 0 {
            return self.fin(now, place, segment, frame);
        }
        // Segments that were retained in another mode reach the guest first.
        let draining = draining || (!is_retaining && !flow.chain.is_empty());
        let pause = if segment.seq != expected {
            Some(Pause::UnexpectedSequence)
        } else if matches!(flow.state.mode, Mode::Off(_)) || draining {
            Some(Pause::Draining)
        } else {
            objection(flow, segment, is_retaining)
        };
        let pause = pause.or_else(|| (is_last && !is_retaining).then_some(Pause::Closing));
        match pause.or_else(|| self.lacks_room(place, end, &frame)) {
            Some(pause) => self.refuse(now, place, pause, segment, frame),
            None if is_retaining => self.retain(now, place, segment, frame),
            None => {
                let flow = self.flows.get(place);
                flow.data.sent = end;
                flow.windows.mss = flow.windows.mss.max(segment.largest);
                let bytes = Placing::UpTo(end);
                self.pending.push(Pending { place, bytes });
                Some(frame)
            }
        }
    }

    /// Returns the reason why there is no room for a segment that ends at `end`.
    fn lacks_room(&mut self, place: Place, end: Seq, frame: &F) -> Option<Pause> {
        let is_retaining = self.is_retaining();
        let flow = self.flows.get(place);
        let edge = if is_retaining {
            flow.windows.shown
        } else {
            flow.windows.edge
        };
        if end.is_after(edge) {
            return Some(Pause::Window);
        }
        let held = flow.chain.held();
        (is_retaining && self.room(held) < frame.truesize().0).then_some(Pause::Retained)
    }

    /// Retains a segment and acknowledges its bytes; returns it if the guest has room for it. A FIN
    /// behind the bytes is retained with them, and only the guest acknowledges it.
    fn retain(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let (most, reach) = (self.config.window.0 as u32, self.reach);
        let truesize = frame.truesize();
        let flow = self.flows.get(place);
        let end = segment.bytes_end();
        let fits = !flow.withholds() && !end.is_after(flow.windows.edge);
        let passes = fits || flow.may_place_ahead(end, reach);
        let (kept, placed) = if passes {
            (frame.again(), Some(frame))
        } else {
            (frame, None)
        };
        let bytes = [segment.seq, segment.end()];
        self.store.push(&mut flow.chain, kept, truesize, bytes);
        flow.grow(segment.largest, most);
        flow.data.next = end;
        flow.state.mode = Mode::Active;
        if passes {
            flow.data.sent = end;
            flow.data.high = flow.data.high.latest(segment.end());
            flow.note_placed(end, reach);
            let bytes = Placing::KeptFrom(segment.seq);
            self.pending.push(Pending { place, bytes });
        } else {
            self.counts.stats.withheld += 1;
        }
        if segment.flags.has(Flags::FIN) {
            flow.close_peer(!passes);
        }
        let (held, window) = (flow.chain.held(), flow.windows.window);
        // The memory of a segment is up to twice its bytes.
        let room = self.room(held) / 2;
        self.arm(now, place);
        self.counts.stats.early += 1;
        self.acknowledge(place, window.min(room as u32));
        placed
    }

    /// Passes on a segment that is not acknowledged early. A segment that the guest could only drop
    /// is dropped here, and answered by a duplicate acknowledgement: the peer retransmits it.
    fn refuse(
        &mut self,
        now: Nanos,
        place: Place,
        pause: Pause,
        segment: &Segment,
        frame: F,
    ) -> Option<F> {
        let (is_retaining, reach) = (self.is_retaining(), self.reach);
        let flow = self.flows.get(place);
        flow.pause(pause);
        if segment.congestion && flow.state.ecn == Ecn::Classic {
            flow.state.ecn = Ecn::Marked;
        }
        let end = segment.bytes_end();
        let answers = !matches!(flow.state.mode, Mode::Off(_))
            && flow.windows.shown.is_after(flow.windows.edge);
        // A guest whose window is full of data behind a hole drops all bytes beyond its window.
        let goes_ahead = pause != Pause::Hole
            && segment.seq == flow.data.sent
            && flow.may_place_ahead(end, reach);
        if answers && end.is_after(flow.windows.edge) && !goes_ahead {
            let is_first = segment.seq == flow.data.sent && flow.windows.edge.is_after(segment.seq);
            self.counts.stats.note_refused(pause);
            if is_first {
                // The guest opens its window once the hole is filled, and acknowledges the bytes
                // that fit.
                let fits = flow.windows.edge.since(segment.seq).min(segment.payload);
                flow.data.high = flow.data.high.latest(flow.windows.edge);
                return Some(frame.part(0, fits));
            }
            self.repeat(now, place);
            return None;
        }
        if goes_ahead || !segment.seq.is_after(flow.windows.edge) {
            flow.data.high = flow.data.high.latest(segment.end());
        }
        let expected = if is_retaining {
            flow.data.next
        } else {
            flow.data.sent
        };
        flow.state.closing.peer |= segment.flags.has(Flags::FIN) && segment.seq == expected;
        // RFC 5961 and PAWS require an answer of the guest to a segment that it does not accept.
        flow.marks.solicited |= matches!(pause, Pause::Acknowledgement | Pause::Timestamp);
        Some(frame)
    }

    /// Repeats the last acknowledgement to the peer, as RFC 9293, 3.10.7.4 requires for every
    /// segment that is not accepted, but at most once in [`SnoopConfig::REPEAT`] (RFC 5961, 7).
    ///
    /// [`SnoopConfig::REPEAT`]: super::SnoopConfig::REPEAT
    fn repeat(&mut self, now: Nanos, place: Place) {
        let flow = self.flows.get(place);
        if flow.may_repeat(now) {
            let window = distance(flow.windows.shown, flow.data.next);
            self.counts.stats.repeated += 1;
            self.acknowledge(place, window);
        }
    }

    /// Processes a segment whose bytes all arrived before.
    fn old(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let flow = self.flows.get(place);
        let is_last = segment.flags.has(Flags::FIN);
        let is_probe = segment.payload <= 1 && segment.seq + 1 == flow.data.next && !is_last;
        let is_withheld =
            segment.bytes_end().is_after(flow.data.sent) || (is_last && flow.state.closing.held);
        if is_probe || !flow.owes() {
            // A keep-alive probe: the guest must answer.
            flow.marks.solicited = true;
            if is_withheld {
                self.probe(place);
            }
        } else {
            self.repeat(now, place);
        }
        (!is_withheld).then_some(frame)
    }

    /// Processes the first copy of a FIN without payload. The guest acknowledges it, and receives
    /// it behind all bytes before it. A FIN behind retransmitted bytes is retransmitted with them.
    fn fin(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let is_retaining = self.is_retaining();
        let flow = self.flows.get(place);
        let end = segment.end();
        let doubt = objection(flow, segment, is_retaining);
        let doubt = doubt.filter(|why| matches!(why, Pause::Timestamp | Pause::Acknowledgement));
        if segment.seq != flow.data.next || (doubt.is_some() && !flow.withholds()) {
            flow.pause(doubt.unwrap_or(Pause::UnexpectedSequence));
            flow.marks.solicited |= doubt.is_some();
            if doubt.is_none() && !segment.seq.is_after(flow.windows.edge) {
                flow.data.high = flow.data.high.latest(end);
            }
            return Some(frame);
        }
        let (owes, withholds, held) = (flow.owes(), flow.withholds(), flow.chain.held());
        let truesize = frame.truesize();
        let lacks_room = self.room(held) < truesize.0;
        if withholds && let Some(why) = doubt.or_else(|| lacks_room.then_some(Pause::Retained)) {
            self.counts.stats.note_refused(why);
            self.repeat(now, place);
            return None;
        }
        let flow = self.flows.get(place);
        flow.close_peer(withholds);
        let mut passed = None;
        if !withholds {
            flow.data.high = flow.data.high.latest(end);
            passed = Some(frame.again());
        }
        if owes && !lacks_room {
            self.store
                .push(&mut flow.chain, frame, truesize, [segment.seq, end]);
            let bytes = Placing::KeptFrom(segment.seq);
            self.pending
                .extend(passed.is_some().then_some(Pending { place, bytes }));
        }
        passed
    }

    /// Processes the peer's reset. A reset behind the guest's window is moved to the next byte that
    /// the guest expects; the guest answers an inexact one (RFC 5961).
    fn reset_by_peer(&mut self, place: Place, segment: &Segment, mut frame: F) -> F {
        let flow = self.flows.get(place);
        if segment.seq != flow.data.next {
            flow.marks.solicited = true;
            return frame;
        }
        let sent = flow.data.sent;
        if segment.seq != sent {
            rewrite_seq(&mut frame, segment, sent);
        }
        self.forget(place);
        frame
    }
}

/// Checks whether the guest has not acknowledged the peer's SYN yet.
const fn is_early(flow: &Flow) -> bool {
    matches!(flow.state.stage, Stage::Opening | Stage::Greeted)
}

/// Records the options that a peer's SYN-ACK agrees to.
fn agree(flow: &mut Flow, segment: &Segment) {
    let options = &segment.options;
    flow.state.stage = Stage::Greeted;
    flow.bar_by(options);
    if segment.payload > 0 {
        flow.bar(Bar::DataOnSyn);
    }
    flow.marks.stamped &= options.timestamps.is_some();
    flow.stamps.peer = options.timestamps.map_or(0, |stamps| stamps.value);
    if options.handshake.scale.is_none() || flow.marks.scale == u8::MAX {
        flow.marks.scale = 0;
    }
    flow.windows.mss = flow
        .windows
        .mss
        .max(options.handshake.mss.unwrap_or(0).min(1460));
    flow.state.ecn = echo(segment.flags);
    flow.reply.peer_ack = segment.ack;
    flow.windows.peer_window = segment.window;
}

/// Returns the congestion feedback that the flags of a SYN-ACK agree to (RFC 9768, 3.1.2).
pub(super) const fn echo(flags: Flags) -> Ecn {
    match flags.only(Flags::ACE) {
        Flags(0) | Flags::ECE => Ecn::Classic,
        _ => Ecn::Accurate(Counter::of(flags)),
    }
}

/// Records that the peer has answered a mark.
fn note_reduction(flow: &mut Flow, segment: &Segment) {
    if flow.state.ecn == Ecn::Marked && segment.flags.has(Flags::CWR) && !segment.congestion {
        flow.state.ecn = Ecn::Classic;
    }
}

/// Returns the reason why a segment that is next is not acknowledged early, by its connection and
/// its header.
fn objection(flow: &Flow, segment: &Segment, is_retaining: bool) -> Option<Pause> {
    // The guest may have dropped the end of the handshake.
    if flow.state.stage == Stage::Answered && !is_retaining {
        return Some(Pause::Opening);
    }
    if flow.state.stage == Stage::Closed {
        return Some(Pause::Closing);
    }
    let expected = if is_retaining {
        flow.data.next
    } else {
        flow.data.sent
    };
    flow.objection(segment, expected)
}

/// Returns the bytes from `at` to `edge`; 0 if `edge` is not behind `at`.
fn distance(edge: Seq, at: Seq) -> u32 {
    if edge.is_after(at) { edge.since(at) } else { 0 }
}

fn rewrite_seq<F: TcpFrame>(frame: &mut F, segment: &Segment, seq: Seq) {
    frame.change(&Change {
        seq,
        ack: segment.ack,
        sacks_after: None,
        window: segment.window,
        timestamps: None,
    });
}
