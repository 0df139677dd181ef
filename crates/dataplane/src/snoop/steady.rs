//! Fast path for nearly all segments: the next segment of a connection, which the host retains and
//! acknowledges, and the guest's acknowledgement of retained data.
//!
//! Both take few steps here. All other segments go through `ingress` and `egress`, which check one
//! condition after the other, and which have the same results for these two.

use super::delayed::delay;
use super::deliver::queue;
use super::flow::{Closing, Ecn, Flow, Stage};
use super::frame::{Change, Direction, Origin, Plain, TcpFrame};
use super::mode::Mode;
use super::reach::Reach;
use super::seq::Seq;
use super::{Pending, Placing, Snoop};
use tailbound_units::Nanos;

impl<F: TcpFrame> Snoop<F> {
    /// Retains and acknowledges a frame to the guest and returns it for the ring, if it is the next
    /// segment of a connection without withheld data. Returns any other frame as the error.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each frame for a guest")]
    pub(super) fn take_next(&mut self, now: Nanos, frame: F) -> Result<F, F> {
        if !self.is_retaining() || self.draining {
            return Err(frame);
        }
        let Some(plain) = frame.plain(Direction::ToGuest) else {
            return Err(frame);
        };
        let Some(mut found) = self.flows.find_mut(&plain.flow, plain.hash) else {
            return Err(frame);
        };
        let (place, flow) = (found.place, &mut found.slot.value);
        let end = plain.seq + plain.payload;
        let truesize = frame.truesize();
        let takes = flow.chain.held() + truesize <= self.config.flow
            && self.store.held() + truesize <= self.config.guest
            && flow.origin.allows(Origin::of(frame.source()))
            && flow.takes(&plain, end, self.reach);
        if !(takes && frame.is_plain_intact(&plain)) {
            return Err(frame);
        }
        let is_first = found.note(now);
        let flow = &mut found.slot.value;
        if is_first {
            flow.forget_repeat();
        }
        let bytes = [plain.seq, end];
        self.store
            .push(&mut flow.chain, frame.again(), truesize, bytes);
        flow.note_placed(end, self.reach);
        flow.note_taken(&plain, end, self.config.window.0 as u32);
        if flow.deadline(now).is_none() {
            let due = flow.set_deadline(now);
            queue(&mut self.timers, flow, place, due);
        }
        // If any is lost, all from the first of the connection on are withheld.
        if self.pending.last().is_none_or(|last| last.place != place) {
            let bytes = Placing::KeptFrom(plain.seq);
            self.pending.push(Pending { place, bytes });
        }
        self.counts.stats.early += 1;
        if matches!(flow.state.mode, Mode::Active) {
            self.counts.owing += usize::from(!flow.marks.counted.replace_owes(true));
        } else {
            flow.state.mode = Mode::Active;
            self.counts.recount(flow);
        }
        let echo = flow.stamps.peer;
        delay(self, place, &plain, end, echo);
        Ok(frame)
    }

    /// Processes a frame of the guest, and returns it for its peer if it has news, if it only
    /// acknowledges more retained data and no data is withheld. Returns any other frame as the
    /// error.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for each frame of a guest")]
    pub(super) fn pass_next(
        &mut self,
        now: Nanos,
        mut frame: F,
        peer: Origin,
    ) -> Result<Option<F>, F> {
        let plain = frame.plain(Direction::ToPeer);
        let Some(plain) = plain.filter(|plain| plain.payload == 0 && !plain.pushed) else {
            return Err(frame);
        };
        let Some(mut found) = self.flows.find_mut(&plain.flow, plain.hash) else {
            return Err(frame);
        };
        let (place, flow) = (found.place, &mut found.slot.value);
        let window = u32::from(plain.window) << flow.marks.scale.min(14);
        let edge = flow.windows.edge.latest(plain.ack + window);
        if !flow.goes_on_with(&plain, edge) {
            return Err(frame);
        }
        let is_first = found.note(now);
        let flow = &mut found.slot.value;
        if is_first {
            flow.forget_repeat();
        }
        flow.origin = peer;
        flow.windows.edge = edge;
        flow.windows.window = window.min(self.config.window.0 as u32);
        flow.note_acknowledged(&plain);
        self.store.free(&mut flow.chain, plain.ack);
        let owes = flow.owes();
        if owes && !flow.chain.is_empty() {
            let due = flow.set_deadline(now);
            queue(&mut self.timers, flow, place, due);
        } else {
            flow.clear_deadline();
        }
        if owes {
            self.counts.stats.suppressed += 1;
            return Ok(None);
        }
        self.counts.owing -= usize::from(flow.marks.counted.replace_owes(false));
        flow.marks.ahead = None;
        let field = flow.show(plain.ack, flow.windows.window);
        if flow.has_passed(plain.ack, field) {
            self.counts.stats.suppressed += 1;
            return Ok(None);
        }
        flow.note_passed(plain.ack, field);
        if field != plain.window {
            self.counts.stats.rewritten += 1;
            frame.change(&Change {
                seq: plain.seq,
                ack: plain.ack,
                sacks_after: None,
                window: field,
                timestamps: None,
            });
        }
        Ok(Some(frame))
    }
}

#[expect(
    clippy::inline_always,
    reason = "so that the fields of a segment stay in registers"
)]
impl Flow {
    /// Checks that neither end is closing, and that no data is withheld.
    #[inline(always)]
    fn is_steady(&self) -> bool {
        let Closing { guest, peer, held } = self.state.closing;
        !(guest | peer | held) && self.data.sent == self.data.next
    }

    /// Checks whether a segment that ends at `end` is next, and may be placed under `reach`.
    #[inline(always)]
    fn takes(&self, plain: &Plain, end: Seq, reach: Reach) -> bool {
        let is_timely = match plain.timestamps {
            Some(stamps) => self.marks.stamped && !self.is_older(stamps),
            None => !self.marks.stamped,
        };
        self.is_steady()
            && !matches!(self.state.mode, Mode::Off(_))
            && matches!(self.state.stage, Stage::Open | Stage::Answered)
            && !matches!(self.state.ecn, Ecn::Marked)
            && plain.payload > 0
            && plain.seq == self.data.next
            && !self.data.high.is_after(self.data.next)
            && is_timely
            && plain.ack.since(self.reply.peer_ack)
                <= self.reply.guest_next.since(self.reply.peer_ack)
            && !end.is_after(self.windows.shown)
            && (!end.is_after(self.windows.edge) || self.may_place_ahead(end, reach))
    }

    /// Records a segment that was taken; `most` is the largest window that may be shown.
    #[inline(always)]
    fn note_taken(&mut self, plain: &Plain, end: Seq, most: u32) {
        self.reply.peer_ack = plain.ack;
        self.windows.peer_window = plain.window;
        if let Some(stamps) = plain.timestamps {
            self.stamps.peer = stamps.value;
        }
        (self.data.next, self.data.sent, self.data.high) = (end, end, end);
        self.grow(plain.largest, most);
    }

    /// Checks whether the guest's segment only acknowledges retained data, without loss. `edge` is
    /// the right edge of its window after the segment.
    #[inline(always)]
    fn goes_on_with(&self, plain: &Plain, edge: Seq) -> bool {
        let has_room =
            edge.is_after(plain.ack) && edge.since(plain.ack) >= u32::from(self.windows.mss);
        self.is_steady()
            && matches!(self.state.mode, Mode::Active)
            && matches!(self.state.stage, Stage::Open | Stage::Answered)
            && matches!(self.state.ecn, Ecn::Classic)
            && !self.marks.solicited
            && plain.seq == self.reply.guest_next
            && plain.ack.since(self.data.vm + 1) < self.data.next.since(self.data.vm)
            && plain.ack.is_after(self.data.recover)
            && (has_room || !self.data.sent.is_after(edge))
    }

    /// Records the guest's acknowledgement, and its headers.
    #[inline(always)]
    fn note_acknowledged(&mut self, plain: &Plain) {
        self.state.stage = Stage::Open;
        self.link = plain.link;
        if let Some(stamps) = plain.timestamps
            && !Seq(stamps.value).is_before(Seq(self.stamps.guest))
        {
            self.stamps.guest = stamps.value;
        }
        (self.data.vm, self.data.recover) = (plain.ack, plain.ack);
        self.data.high = self.data.high.latest(plain.ack);
        (self.losses.resends, self.losses.duplicates) = (0, 0);
    }
}
