//! The host as a TCP sender towards the guest: for what it acknowledged in its place.

use super::flow::{Flow, TICK, ticks};
use super::frame::{Bare, Change, TcpFrame, Way};
use super::segment::Flags;
use super::seq::Seq;
use super::table::Place;
use super::timers::Timers;
use super::{Snoop, SnoopConfig};
use tailbound_units::Nanos;

impl<F: TcpFrame> Snoop<F> {
    /// Sends once more what is due, where the guest has run since it was sent.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while let Some((at, place)) = self.timers.pop_due(now) {
            let flow = self.flows.get(place);
            if flow.queued != at as u32 {
                continue;
            }
            flow.queued = 0;
            match flow.deadline(now) {
                None => {}
                Some(due) if due > ticks(now) => self.queue(place, due),
                Some(due) => self.expire(now, place, Nanos(due << TICK)),
            }
        }
    }

    /// Has the timer of a connection run, where it does not.
    pub(super) fn arm(&mut self, now: Nanos, place: Place) {
        let flow = self.flows.get(place);
        if flow.deadline(now).is_none() {
            let due = flow.set_deadline(now);
            self.queue(place, due);
        }
    }

    /// Has it run anew, or stops it where nothing is owed.
    pub(super) fn rearm(&mut self, now: Nanos, place: Place) {
        let flow = self.flows.get(place);
        if flow.owes() && !flow.chain.is_empty() {
            let due = flow.set_deadline(now);
            self.queue(place, due);
        } else {
            flow.clear_deadline();
        }
    }

    pub(super) fn queue(&mut self, place: Place, due: u64) {
        queue(&mut self.timers, self.flows.get(place), place, due);
    }

    /// The guest did not acknowledge in time.
    fn expire(&mut self, now: Nanos, place: Place, due: Nanos) {
        let flow = self.flows.get(place);
        let sent_at = due.saturating_sub(flow.resend_after());
        // One that waits for its CPU has lost nothing.
        let has_run = self.alive > sent_at;
        if has_run {
            // A closed window that is acknowledged ends nothing.
            if flow.vm == flow.sent && std::mem::take(&mut flow.duplicates) > 0 {
                flow.resends = flow.resends.min(SnoopConfig::RESENDS - 1);
            }
            if flow.resends >= SnoopConfig::RESENDS {
                self.stats.resets += 1;
                self.reset(place);
                return;
            }
            flow.resends += 1;
            if flow.is_ahead() {
                self.rewind(place);
                self.note_lost(place);
            }
            let flow = self.flows.get(place);
            if flow.vm.is_before(flow.sent) {
                self.resend_first(place);
            } else {
                self.knock(place);
            }
        }
        self.rearm(now, place);
    }

    /// Sends the guest the first segment once more that it has not acknowledged.
    pub(super) fn resend_first(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let first = self.store.at(flow.chain, flow.vm).map(|node| node.end);
        if let Some(end) = first {
            self.resend(place, end);
        }
    }

    /// Sends the guest once more what it has not acknowledged of what it was sent, up to `to`.
    pub(super) fn resend(&mut self, place: Place, to: Seq) {
        let flow = self.flows.get(place);
        let (vm, chain) = (flow.vm, flow.chain);
        let to = to.earliest(flow.sent).earliest(flow.edge);
        let mut from = vm;
        while from.is_before(to) {
            let Some(end) = self.store.at(chain, from).map(|node| node.end) else {
                break;
            };
            let end = end.earliest(to);
            self.stats.resent += 1;
            self.emit(place, from, end);
            from = end;
        }
        let flow = self.flows.get(place);
        flow.recover = from;
        if from != vm {
            flow.resent = true;
            self.note_lost(place);
        }
    }

    /// Withholds what the guest was sent and has not taken.
    pub(super) fn rewind(&mut self, place: Place) {
        self.flows.get(place).rewind();
        self.hold_fin(place);
    }

    /// Holds a kept FIN back while bytes before it wait for the guest's window.
    pub(super) fn hold_fin(&mut self, place: Place) {
        let flow = self.flows.get(place);
        if flow.closing.peer {
            let is_kept = self.store.at(flow.chain, flow.next).is_some();
            flow.closing.held |= is_kept;
        }
    }

    /// A guest that lost what was placed beyond its window gets less of that from now on.
    pub(super) fn note_lost(&mut self, place: Place) {
        let reach = self.reach;
        if self.flows.get(place).note_lost(reach) {
            self.stats.narrowed += u64::from(reach != reach.less());
            self.reach = reach.less();
        }
    }

    /// Sends the guest what its window has room for of what was withheld.
    pub(super) fn release(&mut self, now: Nanos, place: Place) {
        loop {
            let flow = self.flows.get(place);
            let sent = flow.sent;
            if !flow.withholds() {
                break;
            }
            let Some(node) = self.store.at(flow.chain, sent) else {
                return;
            };
            // A FIN is none of the bytes.
            let end = node.end.earliest(flow.next);
            let to = if end.is_after(flow.edge) {
                // The part that fits, of one that is yet to be cut.
                let mss = u32::from(flow.mss).max(1);
                let room = if flow.edge.is_after(sent) {
                    flow.edge.since(sent)
                } else {
                    0
                };
                sent + room / mss * mss
            } else {
                end
            };
            if to == sent {
                return;
            }
            self.advance(place, to);
            self.rearm(now, place);
        }
        self.release_last(place);
    }

    /// Sends the guest the peer's FIN, if a segment without payload brought it.
    fn release_last(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let next = flow.next;
        if !flow.closing.held || next.is_after(flow.edge) {
            return;
        }
        flow.closing.held = false;
        if self.store.at(flow.chain, next).is_some() {
            flow.high = flow.high.latest(next + 1);
            self.emit_part(place, next, 0);
        }
    }

    /// Sends what was withheld up to `to`; with the last byte of all goes a FIN that came with it.
    fn advance(&mut self, place: Place, to: Seq) {
        let flow = self.flows.get(place);
        let from = flow.sent;
        flow.sent = to;
        self.stats.resent += u64::from(flow.high.is_after(from));
        flow.high = flow.high.latest(to);
        if flow.closing.held && to == flow.next {
            let last = self.store.at(flow.chain, to);
            if last.is_some_and(|node| node.seq.is_before(to)) {
                flow.closing.held = false;
                flow.high = flow.high.latest(to + 1);
            }
        }
        self.emit(place, from, to);
    }

    /// Asks a guest whose window is closed whether it is still: with what there is room for
    /// at all, or with nothing.
    fn knock(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let (sent, edge, next) = (flow.sent, flow.edge, flow.next);
        let end = self.store.at(flow.chain, sent).map(|node| node.end);
        match end {
            Some(end) if edge.is_after(sent) => {
                self.advance(place, end.earliest(next).earliest(edge));
            }
            _ => self.probe(place),
        }
    }

    /// Asks the guest for an acknowledgement (RFC 9293, 3.8.6.1): with nothing, from before
    /// what it has.
    pub(super) fn probe(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        // What was placed ahead of its window it may have dropped.
        let before = if flow.is_ahead() { flow.vm } else { flow.sent };
        let bare = Bare {
            way: Way::ToGuest,
            flow: id,
            hash,
            link: flow.link,
            seq: before - 1,
            ack: flow.peer_ack,
            flags: Flags::ACK,
            window: flow.peer_window,
            timestamps: flow.stamps_to_guest(),
        };
        self.stats.probes += 1;
        self.to_guest.push_back(F::bare(&self.maker, &bare));
    }

    fn emit(&mut self, place: Place, from: Seq, to: Seq) {
        self.emit_part(place, from, to.since(from));
    }

    /// Sends the guest `len` bytes from `from` on, in the peer's place as it is now.
    fn emit_part(&mut self, place: Place, from: Seq, len: u32) {
        let flow = self.flows.get(place);
        let node = self.store.at(flow.chain, from);
        let Some((node, frame)) = node.and_then(|node| Some((node, node.frame()?))) else {
            return;
        };
        let mut part = frame.part(from.since(node.seq), len);
        part.change(&Change {
            seq: from,
            ack: flow.peer_ack,
            sacks_after: None,
            window: flow.peer_window,
            timestamps: flow.stamps_to_guest(),
        });
        self.to_guest.push_back(part);
    }

    /// Ends a connection whose guest does not take what was acknowledged in its place.
    fn reset(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        let bare = Bare {
            way: Way::ToGuest,
            flow: id,
            hash,
            link: flow.link,
            seq: flow.vm,
            ack: flow.peer_ack,
            flags: Flags::RST.with(Flags::ACK),
            window: 0,
            timestamps: flow.stamps_to_guest(),
        };
        self.to_guest.push_back(F::bare(&self.maker, &bare));
        self.abandon(place);
    }
}

/// Has a connection looked at when that is due, where it is not before.
#[inline]
pub(super) fn queue(timers: &mut Timers, flow: &mut Flow, place: Place, due: u64) {
    let after = (due as u32).wrapping_sub(flow.queued).cast_signed();
    if flow.queued == 0 || after < 0 {
        flow.queued = due as u32;
        timers.push(due, place);
    }
}
