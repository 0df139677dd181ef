//! What comes for the guest.

use super::flow::{Counter, Ecn, Flow, Stage};
use super::frame::{Change, Origin, TcpFrame, Way};
use super::mode::{Bar, Mode, Pause};
use super::segment::{Flags, Segment};
use super::seq::Seq;
use super::table::Place;
use super::{Pending, Placed, Placing, Snoop};
use tailbound_units::Nanos;

impl<F: TcpFrame> Snoop<F> {
    /// Looks at a frame for the guest, behind every queue that may drop it. Returns what is
    /// to be placed in its ring; `None` where that comes later, or not at all.
    ///
    /// The caller says what became of it ([`Snoop::handle_placed`]) before it hands over
    /// anything that the guest sent.
    #[inline]
    pub fn handle_ingress(&mut self, now: Nanos, frame: F) -> Option<F> {
        match self.take_next(now, frame) {
            Ok(next) => Some(next),
            Err(other) => self.take(now, other),
        }
    }

    /// The same, whatever the frame is.
    #[inline(never)]
    fn take(&mut self, now: Nanos, frame: F) -> Option<F> {
        let Some(sight) = frame.sight(Way::ToGuest) else {
            return Some(frame);
        };
        let Some(place) = self.flows.find(&sight.flow, sight.hash) else {
            return Some(frame);
        };
        let flow = self.flows.get(place);
        let is_peer = flow.origin.allows(Origin::of(frame.source()));
        if flow.stage == Stage::Foreign || !is_peer {
            return Some(frame);
        }
        self.flows.touch(now, place);
        let flow = self.flows.get(place);
        let Some(segment) = &sight.segment else {
            flow.pause(Pause::Unreadable);
            flow.solicited = true;
            self.recount(place);
            return Some(frame);
        };
        // Of what was damaged the guest takes no word, and neither is any to be taken here: a
        // number or a flag in it may be anything.
        if !frame.is_intact() {
            flow.pause(Pause::Checksum);
            self.recount(place);
            return Some(frame);
        }
        if segment.options.exotic.is_some() {
            flow.bar_by(&segment.options);
        }
        let control = Flags::SYN.with(Flags::RST).with(Flags::FIN);
        let passed = if segment.payload == 0 || segment.flags.has(control) || is_early(flow) {
            self.without_data(now, place, segment, frame)
        } else {
            self.note_peer(place, segment);
            self.with_data(now, place, segment, frame)
        };
        self.recount(place);
        passed
    }

    /// What became of the frames that passed since this was called last. What is kept and did
    /// not get there is held back, until the guest acknowledges something.
    #[inline]
    pub fn handle_placed(&mut self, placed: Placed) {
        // What is kept and not lost needs no more.
        if placed == Placed::Lost || !self.is_retaining() {
            self.settle(placed);
        }
        self.pending.clear();
    }

    #[cold]
    fn settle(&mut self, placed: Placed) {
        for index in 0..self.pending.len() {
            let Pending { place, bytes } = self.pending[index];
            match bytes {
                Placing::KeptFrom(_) if placed != Placed::Lost => {}
                Placing::KeptFrom(seq) => {
                    let flow = self.flows.get(place);
                    flow.sent = flow.sent.earliest(seq.latest(flow.vm));
                }
                Placing::UpTo(end) => self.placed_up_to(place, end, placed),
            }
        }
    }

    fn placed_up_to(&mut self, place: Place, end: Seq, placed: Placed) {
        let flow = self.flows.get(place);
        if placed == Placed::All {
            flow.next = end;
            flow.high = flow.high.latest(end);
            flow.mode = Mode::Active;
            let window = distance(flow.edge, end);
            self.stats.early += 1;
            self.acknowledge(place, window);
        } else {
            flow.high = flow.high.latest(flow.sent);
            flow.sent = flow.next;
            flow.pause(Pause::NoRoom);
        }
        self.recount(place);
    }

    /// Notes what the peer says of itself in a segment that it may well have sent.
    fn note_peer(&mut self, place: Place, segment: &Segment) {
        let flow = self.flows.get(place);
        let &Segment { seq, ack, .. } = segment;
        if seq.is_after(flow.next) || segment.end().is_before(flow.vm) {
            return;
        }
        if segment.flags.has(Flags::ACK) && !ack.is_after(flow.guest_next) {
            if !ack.is_before(flow.peer_ack) {
                flow.peer_ack = ack;
                flow.peer_window = segment.window;
            }
            if let Some(stamps) = segment.options.timestamps {
                flow.note_stamp(stamps);
            }
        }
        if flow.closing.guest && flow.peer_ack == flow.guest_next {
            self.close_if_done(place);
        }
    }

    /// An end has closed, and the other knows.
    pub(super) fn close_if_done(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let guest = flow.closing.guest && flow.peer_ack == flow.guest_next;
        let peer = flow.closing.peer && !flow.high.is_after(flow.vm);
        if guest && peer && !flow.owes() {
            flow.stage = Stage::Closed;
            flow.pause(Pause::Closing);
        }
    }

    /// A segment without payload, or one that begins or ends a direction.
    fn without_data(
        &mut self,
        now: Nanos,
        place: Place,
        segment: &Segment,
        mut frame: F,
    ) -> Option<F> {
        let flow = self.flows.get(place);
        if segment.flags.has(Flags::SYN) {
            flow.solicited = true;
            if flow.stage == Stage::Opening && segment.flags.has(Flags::ACK) {
                agree(flow, segment);
            }
            return Some(frame);
        }
        if is_early(flow) {
            return Some(frame);
        }
        if segment.flags.has(Flags::RST) {
            return Some(self.reset_by_peer(place, segment, frame));
        }
        self.note_peer(place, segment);
        let flow = self.flows.get(place);
        note_reduction(flow, segment);
        if segment.flags.has(Flags::FIN) {
            return self.fin(now, place, segment, frame);
        }
        if segment.seq != flow.next {
            flow.solicited = true;
        }
        let is_next = segment.seq.is_after(flow.sent) && !segment.seq.is_after(flow.next);
        if flow.withholds() && is_next {
            // The guest would not look at what is behind its window. What is not in order
            // stays so: its time is not to be the guest's latest, which what is kept has.
            let before = distance(flow.next, segment.seq);
            let seq = flow.sent - before.min(1);
            rewrite_seq(&mut frame, segment, seq);
        }
        Some(frame)
    }

    /// A segment with payload, in a connection that is open.
    fn with_data(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let (is_retaining, draining) = (self.is_retaining(), self.draining);
        let flow = self.flows.get(place);
        note_reduction(flow, segment);
        let end = segment.end();
        // What another mode kept is brought to its end first.
        let draining = draining || (!is_retaining && !flow.chain.is_empty());
        // In strict mode what passed and is not placed yet counts as there.
        let expected = if is_retaining { flow.next } else { flow.sent };
        if !end.is_after(flow.next) {
            return self.old(now, place, segment, frame);
        }
        let pause = if segment.seq != expected {
            Some(Pause::UnexpectedSequence)
        } else if matches!(flow.mode, Mode::Off(_)) || draining {
            Some(Pause::Draining)
        } else {
            objection(flow, segment, is_retaining)
        };
        match pause.or_else(|| self.lacks_room(place, end, &frame)) {
            Some(pause) => self.refuse(now, place, pause, segment, frame),
            None if is_retaining => self.retain(now, place, segment, frame),
            None => {
                let flow = self.flows.get(place);
                flow.sent = end;
                flow.mss = flow.mss.max(segment.largest);
                let bytes = Placing::UpTo(end);
                self.pending.push(Pending { place, bytes });
                Some(frame)
            }
        }
    }

    /// Why there is no room for what ends at `end`.
    fn lacks_room(&mut self, place: Place, end: Seq, frame: &F) -> Option<Pause> {
        let is_retaining = self.is_retaining();
        let flow = self.flows.get(place);
        let edge = if is_retaining { flow.shown } else { flow.edge };
        if end.is_after(edge) {
            return Some(Pause::Window);
        }
        let held = flow.chain.held();
        (is_retaining && self.room(held) < frame.truesize().0).then_some(Pause::Retained)
    }

    /// Keeps a segment and acknowledges it; returns it where the guest has room for it.
    fn retain(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let (most, reach) = (self.config.window.0 as u32, self.reach);
        let truesize = frame.truesize();
        let flow = self.flows.get(place);
        let end = segment.end();
        let fits = !flow.withholds() && !end.is_after(flow.edge);
        let passes = fits || flow.may_place_ahead(end, reach);
        let (kept, placed) = if passes {
            (frame.again(), Some(frame))
        } else {
            (frame, None)
        };
        self.store
            .push(&mut flow.chain, kept, truesize, [segment.seq, end]);
        flow.grow(segment.largest, most);
        flow.next = end;
        flow.mode = Mode::Active;
        if passes {
            flow.sent = end;
            flow.high = flow.high.latest(end);
            flow.note_placed(end, reach);
            let bytes = Placing::KeptFrom(segment.seq);
            self.pending.push(Pending { place, bytes });
        } else {
            self.stats.withheld += 1;
        }
        let (held, window) = (flow.chain.held(), flow.window);
        // A segment takes up to twice its bytes.
        let room = self.room(held) / 2;
        self.arm(now, place);
        self.stats.early += 1;
        self.acknowledge(place, window.min(room as u32));
        placed
    }

    /// Passes on what is not acknowledged early, or leaves it to the peer to send it again
    /// where the guest could only drop it.
    fn refuse(
        &mut self,
        now: Nanos,
        place: Place,
        pause: Pause,
        segment: &Segment,
        frame: F,
    ) -> Option<F> {
        let reach = self.reach;
        let flow = self.flows.get(place);
        flow.pause(pause);
        if segment.congestion && flow.ecn == Ecn::Classic {
            flow.ecn = Ecn::Marked;
        }
        let end = segment.end();
        let promised = flow.shown.is_after(flow.edge);
        let goes_ahead = segment.seq == flow.sent && flow.may_place_ahead(end, reach);
        if promised && end.is_after(flow.edge) && !goes_ahead {
            self.stats.beyond += 1;
            let is_first = segment.seq == flow.sent && flow.edge.is_after(segment.seq);
            if is_first {
                // A guest whose buffer is full of what came behind a hole opens its window once
                // that is filled, with as much as it has room for.
                let fits = flow.edge.since(segment.seq).min(segment.payload);
                flow.high = flow.high.latest(flow.edge);
                return Some(frame.part(0, fits));
            }
            if flow.may_repeat(now) {
                flow.solicited = true;
                self.probe(place);
            }
            return None;
        }
        if goes_ahead || !segment.seq.is_after(flow.edge) {
            flow.high = flow.high.latest(end);
        }
        // RFC 5961 and PAWS have the guest answer what it does not take.
        flow.solicited |= matches!(pause, Pause::Acknowledgement | Pause::Timestamp);
        Some(frame)
    }

    /// A segment of which everything was acknowledged already.
    fn old(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let flow = self.flows.get(place);
        let is_probe = segment.payload <= 1 && segment.seq + 1 == flow.next;
        let is_withheld = segment.end().is_after(flow.sent);
        if is_probe || !flow.owes() {
            // Asks whether the guest lives.
            flow.solicited = true;
            if is_withheld {
                self.probe(place);
            }
        } else if flow.may_repeat(now) {
            let window = distance(flow.shown, flow.next);
            self.stats.repeated += 1;
            self.acknowledge(place, window);
        }
        (!is_withheld).then_some(frame)
    }

    /// The last segment of the peer's: never acknowledged early, and behind all that is
    /// withheld.
    fn fin(&mut self, now: Nanos, place: Place, segment: &Segment, frame: F) -> Option<F> {
        let flow = self.flows.get(place);
        let end = segment.end();
        if segment.seq != flow.next || !flow.withholds() {
            let pause = if segment.seq == flow.next {
                flow.closing.peer = true;
                Pause::Closing
            } else {
                Pause::UnexpectedSequence
            };
            if segment.payload > 0 && end.is_after(flow.next) {
                return self.refuse(now, place, pause, segment, frame);
            }
            flow.pause(pause);
            if !segment.seq.is_after(flow.edge) {
                flow.high = flow.high.latest(end);
            }
            return Some(frame);
        }
        let held = flow.chain.held();
        let truesize = frame.truesize();
        if self.room(held) < truesize.0 || self.flows.get(place).closing.held {
            return None;
        }
        let flow = self.flows.get(place);
        flow.closing.peer = true;
        flow.closing.held = true;
        flow.pause(Pause::Closing);
        self.store
            .push(&mut flow.chain, frame, truesize, [segment.seq, end]);
        None
    }

    /// The peer gives the connection up. What it sends behind the window of the guest is
    /// brought before it; one that is not exact (RFC 5961) is for the guest to answer.
    fn reset_by_peer(&mut self, place: Place, segment: &Segment, mut frame: F) -> F {
        let flow = self.flows.get(place);
        if segment.seq != flow.next {
            flow.solicited = true;
            return frame;
        }
        let sent = flow.sent;
        if segment.seq != sent {
            rewrite_seq(&mut frame, segment, sent);
        }
        self.forget(place);
        frame
    }
}

/// Whether the guest has not acknowledged the peer's first segment yet.
const fn is_early(flow: &Flow) -> bool {
    matches!(flow.stage, Stage::Opening | Stage::Greeted)
}

/// What a peer's SYN-ACK agrees to.
fn agree(flow: &mut Flow, segment: &Segment) {
    let options = &segment.options;
    flow.stage = Stage::Greeted;
    flow.bar_by(options);
    if segment.payload > 0 {
        flow.bar(Bar::DataOnSyn);
    }
    flow.stamped &= options.timestamps.is_some();
    flow.peer_stamp = options.timestamps.map_or(0, |stamps| stamps.value);
    if options.handshake.scale.is_none() || flow.scale == u8::MAX {
        flow.scale = 0;
    }
    flow.mss = flow.mss.max(options.handshake.mss.unwrap_or(0).min(1460));
    flow.ecn = echo(segment.flags);
    flow.peer_ack = segment.ack;
    flow.peer_window = segment.window;
}

/// What the flags of a SYN-ACK agree to (RFC 9768, 3.1.2).
pub(super) const fn echo(flags: Flags) -> Ecn {
    match flags.only(Flags::ACE) {
        Flags(0) | Flags::ECE => Ecn::Classic,
        _ => Ecn::Accurate(Counter::of(flags)),
    }
}

/// The peer has answered a mark.
fn note_reduction(flow: &mut Flow, segment: &Segment) {
    if flow.ecn == Ecn::Marked && segment.flags.has(Flags::CWR) && !segment.congestion {
        flow.ecn = Ecn::Classic;
    }
}

/// Why a segment that is next is not acknowledged early, by its connection and its header.
fn objection(flow: &Flow, segment: &Segment, is_retaining: bool) -> Option<Pause> {
    // The guest may have dropped the end of the handshake.
    if flow.stage == Stage::Answered && !is_retaining {
        return Some(Pause::Opening);
    }
    if flow.stage == Stage::Closed {
        return Some(Pause::Closing);
    }
    let expected = if is_retaining { flow.next } else { flow.sent };
    flow.objection(segment, expected)
}

/// From `at` to `edge`; 0 where that is not behind it.
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
