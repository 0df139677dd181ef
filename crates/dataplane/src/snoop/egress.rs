//! Processes frames from the guest.

use super::delayed::make_delayed;
use super::flow::{Closing, Counter, Ecn, Flow, Stage};
use super::frame::{Change, Direction, Origin, Sight, TcpFrame};
use super::ingress::echo;
use super::mode::{Bar, Mode, Pause};
use super::segment::{Flags, Segment};
use super::seq::Seq;
use super::table::{Place, Table};
use super::{Snoop, SnoopConfig};
use tailbound_units::Nanos;

/// Verdict on a segment of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Forward it unchanged.
    Pass,
    /// Forward it with these fields.
    Rewrite(Change),
    /// Drop it: its peer knows its contents already.
    Suppress,
}

impl<F: TcpFrame> Snoop<F> {
    /// Processes a frame of the guest to a peer at `peer`. Returns the frame to forward; `None` if
    /// it has no news for its peer.
    #[inline]
    pub fn handle_egress(&mut self, now: Nanos, frame: F, peer: Origin) -> Option<F> {
        self.alive = now;
        make_delayed(self);
        match self.pass_next(now, frame, peer) {
            Ok(passed) => passed,
            Err(other) => self.pass(now, other, peer),
        }
    }

    /// Processes any frame of the guest.
    #[inline(never)]
    fn pass(&mut self, now: Nanos, mut frame: F, peer: Origin) -> Option<F> {
        let Some(sight) = frame.sight(Direction::ToPeer) else {
            return Some(frame);
        };
        let known = self.flows.find(&sight.flow, sight.hash);
        let Some(segment) = &sight.segment else {
            if let Some(place) = known {
                self.flows.get(place).pause(Pause::Unreadable);
                self.recount(place);
            }
            return Some(frame);
        };
        if segment.flags.has(Flags::SYN.with(Flags::RST)) {
            self.begin_or_end(now, &sight, segment, &frame, peer);
            return Some(frame);
        }
        let Some(place) = known else {
            let flow = Flow::new(Stage::Foreign, Mode::Off(Bar::Joined), frame.link(), peer);
            self.add(now, &sight, flow);
            return Some(frame);
        };
        let flow = self.flows.get(place);
        if flow.state.stage == Stage::Foreign || !segment.flags.has(Flags::ACK) {
            return Some(frame);
        }
        flow.link = frame.link();
        flow.origin = peer;
        if self.flows.touch(now, place) {
            self.flows.get(place).forget_repeat();
        }
        let fate = self.acknowledged(now, place, segment);
        self.recount(place);
        match fate {
            Fate::Pass => Some(frame),
            Fate::Rewrite(change) => {
                self.counts.stats.rewritten += 1;
                frame.change(&change);
                Some(frame)
            }
            Fate::Suppress => {
                self.counts.stats.suppressed += 1;
                None
            }
        }
    }

    /// Processes a segment that begins a connection or with which the guest resets it.
    fn begin_or_end(
        &mut self,
        now: Nanos,
        sight: &Sight,
        segment: &Segment,
        frame: &F,
        peer: Origin,
    ) {
        let known = self.flows.find(&sight.flow, sight.hash);
        if segment.flags.has(Flags::RST) {
            if let Some(place) = known {
                self.forget(place);
            }
            return;
        }
        if let Some(place) = known {
            let flow = self.flows.get(place);
            if is_again(flow, segment) {
                return;
            }
            // The guest has forgotten the data that was retained for it.
            self.abandon(place);
        }
        let flow = opened(segment, frame.link(), peer, &self.config);
        self.add(now, sight, flow);
    }

    /// Adds a connection. In a full table it replaces an idle one without retained data. If the
    /// oldest ones all have retained data, the new one is not followed.
    fn add(&mut self, now: Nanos, sight: &Sight, flow: Flow) {
        forget_closed(self, now);
        if self.flows.is_full() {
            let Some(place) = idle_without_debt(&mut self.flows, now) else {
                self.counts.stats.crowded += 1;
                return;
            };
            self.forget(place);
            self.counts.stats.evicted += 1;
        }
        self.counts.modes[flow.marks.counted.mode()] += 1;
        let place = self.flows.add(now, sight.flow, sight.hash, flow);
        self.recount(place);
    }

    /// Processes the guest's acknowledgement, and returns the verdict on it.
    fn acknowledged(&mut self, now: Nanos, place: Place, segment: &Segment) -> Fate {
        let most = self.config.window.0 as u32;
        let flow = self.flows.get(place);
        let window = u32::from(segment.window) << flow.marks.scale.min(14);
        match flow.state.stage {
            Stage::Opening => {
                // The answer took another path: the agreed options are not known.
                flow.state.stage = Stage::Foreign;
                flow.bar(Bar::Joined);
                return Fate::Pass;
            }
            Stage::Greeted => {
                flow.start(segment.ack, window, &self.config);
                flow.state.stage = Stage::Open;
            }
            Stage::Answered => flow.state.stage = Stage::Open,
            Stage::Open | Stage::Closed | Stage::Foreign => {}
        }
        flow.bar_by(&segment.options);
        let is_empty = is_empty(flow, segment);
        let counted = note_guest(flow, segment);
        let edge = flow.windows.edge.latest(segment.ack + window);
        let opens = std::mem::replace(&mut flow.windows.edge, edge) != edge;
        flow.windows.window = window.min(most);
        self.follow(now, place, segment, opens);
        let flow = self.flows.get(place);
        let ack = segment.ack.latest(flow.data.next);
        let wanted = match flow.state.mode {
            // An unanswered connection keeps the guest's own window.
            Mode::Off(_) => window,
            Mode::Active | Mode::Offline(_) => window.min(most),
        };
        // Room behind acknowledged bytes is part of the window that the peer was shown.
        let wanted = wanted.saturating_sub(ack.since(segment.ack));
        let solicited = std::mem::take(&mut flow.marks.solicited);
        let is_news = counted
            || segment.flags.has(Flags::ECE)
            || names_more(segment, ack, flow.losses.resent);
        if is_empty && !solicited && !is_news && segment.ack.is_before(ack) {
            return Fate::Suppress;
        }
        let field = flow.show(ack, wanted);
        let is_same = flow.has_passed(ack, field);
        if is_empty && !solicited && !is_news && is_same && flow.state.mode == Mode::Active {
            return Fate::Suppress;
        }
        if is_empty {
            flow.note_passed(ack, field);
        }
        let strips = flow.losses.resent || segment.ack.is_before(ack);
        let strips = strips && !segment.options.sacks.is_empty();
        if ack == segment.ack && field == segment.window && !strips {
            return Fate::Pass;
        }
        Fate::Rewrite(Change {
            seq: segment.seq,
            ack,
            sacks_after: strips.then_some(ack),
            window: field,
            timestamps: None,
        })
    }

    /// Follows the guest's acknowledgement: frees retained segments, retransmits lost ones, and
    /// sends bytes that waited for the window. `opens`: the right edge has moved.
    fn follow(&mut self, now: Nanos, place: Place, segment: &Segment, opens: bool) {
        let flow = self.flows.get(place);
        let ack = segment.ack;
        let hole = hole(segment);
        let mut repeats = false;
        if ack.is_after(flow.data.vm) {
            let was_owed = flow.owes();
            // The guest has the retransmitted bytes, and none of those behind them.
            let lacks_rest = ack == flow.data.recover && ack.is_before(flow.data.sent);
            flow.data.vm = ack;
            flow.data.sent = flow.data.sent.latest(ack);
            flow.data.next = flow.data.next.latest(ack);
            flow.data.high = flow.data.high.latest(ack);
            flow.data.recover = flow.data.recover.latest(ack);
            flow.marks.ahead = flow.marks.ahead.filter(|_| ack.is_before(flow.data.sent));
            (flow.losses.resends, flow.losses.duplicates) = (0, 0);
            if was_owed {
                self.store.free(&mut flow.chain, ack);
                if lacks_rest {
                    self.rewind(place);
                }
                self.rearm(now, place);
            }
            self.close_if_done(place);
        } else if ack == flow.data.vm && flow.owes() {
            if segment.payload == 0 && flow.data.vm.is_before(flow.data.sent) {
                flow.losses.duplicates = flow.losses.duplicates.saturating_add(1);
                repeats = !opens && hole.is_none();
                if flow.losses.duplicates == 3
                    && !flow.is_ahead()
                    && !flow.data.recover.is_after(ack)
                {
                    self.resend_first(place);
                }
            } else if flow.data.vm == flow.data.sent {
                // The guest has answered a probe.
                flow.losses.duplicates = 1;
            }
        }
        let flow = self.flows.get(place);
        if let Some(hole) = hole
            && flow.owes()
            && !flow.data.recover.is_after(ack)
        {
            self.resend(place, hole);
        }
        let flow = self.flows.get(place);
        if flow.drops_ahead(repeats) {
            self.rewind(place);
            self.note_lost(place);
        }
        let flow = self.flows.get(place);
        if flow.withholds() || flow.state.closing.held {
            self.release(now, place);
        }
        let flow = self.flows.get(place);
        if !(flow.chain.is_empty() || flow.owes() || flow.state.closing.held) {
            // The peer's last segment, which the peer itself must retransmit.
            self.store.clear(&mut flow.chain);
        }
    }
}

/// Forgets connections that both ends closed at least [`SnoopConfig::LINGER`] ago.
fn forget_closed<F: TcpFrame>(snoop: &mut Snoop<F>, now: Nanos) {
    for _ in 0..2 {
        let Some((place, idle)) = snoop.flows.oldest(now) else {
            return;
        };
        let is_closed = snoop.flows.peek(place).state.stage == Stage::Closed;
        if !is_closed || idle < SnoopConfig::LINGER {
            return;
        }
        snoop.forget(place);
    }
}

/// Returns the connection that was idle for longest and has no retained data, if it is among a few.
/// Retained data counts as a use.
fn idle_without_debt(flows: &mut Table<Flow>, now: Nanos) -> Option<Place> {
    for _ in 0..8 {
        let (place, _) = flows.oldest(now)?;
        if !flows.peek(place).owes() {
            return Some(place);
        }
        flows.pass_over(now, place);
    }
    None
}

/// Returns the connection that a SYN or SYN-ACK of the guest opens.
fn opened(segment: &Segment, link: super::Link, peer: Origin, config: &SnoopConfig) -> Flow {
    let is_answer = segment.flags.has(Flags::ACK);
    let stage = if is_answer {
        Stage::Answered
    } else {
        Stage::Opening
    };
    let mut flow = Flow::new(stage, Mode::Offline(Pause::Opening), link, peer);
    let options = &segment.options;
    flow.bar_by(options);
    if segment.payload > 0 {
        flow.bar(Bar::DataOnSyn);
    }
    flow.reply.guest_next = segment.end();
    flow.reply.peer_ack = segment.seq;
    // Until the peer answers, the offered scale: above any valid one if none is offered.
    flow.marks.scale = options.handshake.scale.unwrap_or(u8::MAX);
    flow.marks.stamped = options.timestamps.is_some();
    flow.stamps.guest = options.timestamps.map_or(0, |stamps| stamps.value);
    if is_answer {
        // Its options are those of both ends; the window in it is not scaled.
        flow.marks.scale = options.handshake.scale.unwrap_or(0);
        flow.state.ecn = echo(segment.flags);
        flow.stamps.peer = options.timestamps.map_or(0, |stamps| stamps.echo);
        flow.start(segment.ack, segment.window.into(), config);
    }
    flow
}

/// Checks whether a SYN or SYN-ACK of the guest is the known connection's, retransmitted or
/// duplicated. In an open connection, its numbers must be at most 64 KiB old and its timestamp no
/// later than the guest's last: numbers alone repeat on the same ports, because the clock behind
/// them wraps within minutes (RFC 6528).
fn is_again(flow: &Flow, segment: &Segment) -> bool {
    const SHORT: u32 = 1 << 16;
    let is_of = |number: Seq, now: Seq| !number.is_after(now) && now.since(number) <= SHORT;
    match flow.state.stage {
        Stage::Opening | Stage::Greeted | Stage::Answered => flow.reply.guest_next == segment.end(),
        Stage::Open => {
            let is_answer = segment.flags.has(Flags::ACK);
            let stamps = segment.options.timestamps;
            is_of(segment.end(), flow.reply.guest_next)
                && (!is_answer || is_of(segment.ack, flow.data.vm))
                && stamps.is_none_or(|it| !Seq(it.value).is_after(Seq(flow.stamps.guest)))
        }
        Stage::Closed | Stage::Foreign => false,
    }
}

/// Checks whether a segment of the guest only acknowledges: it is no probe (RFC 9293, 3.8.4), and
/// has no data and no FIN.
fn is_empty(flow: &Flow, segment: &Segment) -> bool {
    segment.payload == 0 && !segment.flags.has(Flags::FIN) && segment.seq == flow.reply.guest_next
}

/// Records the guest's own state from a segment. Returns whether its counter of congestion changed.
fn note_guest(flow: &mut Flow, segment: &Segment) -> bool {
    flow.reply.guest_next = flow.reply.guest_next.latest(segment.end());
    if segment.flags.has(Flags::FIN) {
        flow.state.closing = Closing {
            guest: true,
            ..flow.state.closing
        };
    }
    if let Some(stamps) = segment.options.timestamps
        && !Seq(stamps.value).is_before(Seq(flow.stamps.guest))
    {
        flow.stamps.guest = stamps.value;
    }
    let counter = Counter::of(segment.flags);
    match &mut flow.state.ecn {
        Ecn::Accurate(last) => std::mem::replace(last, counter) != counter,
        Ecn::Classic | Ecn::Marked => false,
    }
}

/// Returns the begin of the first SACK block behind a hole: the guest lost the bytes before it,
/// because frames are never reordered between the host and the guest.
fn hole(segment: &Segment) -> Option<Seq> {
    let blocks = segment.options.sacks.iter().map(|(left, _)| left);
    blocks
        .filter(|left| left.is_after(segment.ack))
        .reduce(Seq::earliest)
}

/// Checks for SACK blocks behind the acknowledgement that will be in the segment. Blocks of
/// duplicates (RFC 2883) count, too, unless the host has retransmitted.
fn names_more(segment: &Segment, ack: Seq, resent: bool) -> bool {
    let tells_twice = !resent && segment.ack == ack;
    let mut blocks = segment.options.sacks.iter();
    blocks.any(|(left, _)| left.is_after(ack) || (tells_twice && left.is_before(ack)))
}
