//! The host as a TCP sender to the guest, for data that it acknowledged early.

use super::delayed::make_delayed;
use super::flow::{Flow, TICK, ticks};
use super::frame::{Bare, Change, Direction, TcpFrame};
use super::segment::Flags;
use super::seq::Seq;
use super::table::Place;
use super::timers::Timers;
use super::{Snoop, SnoopConfig};
use tailbound_units::Nanos;

impl<F: TcpFrame> Snoop<F> {
    /// Retransmits data whose time has come, if the guest has run since it was sent.
    pub fn handle_timeout(&mut self, now: Nanos) {
        make_delayed(self);
        while let Some((at, place)) = self.timers.pop_due(now) {
            let flow = self.flows.get(place);
            if flow.timer.queued != at as u32 {
                continue;
            }
            flow.timer.queued = 0;
            match flow.deadline(now) {
                None => {}
                Some(due) if due > ticks(now) => self.queue(place, due),
                Some(due) => self.expire(now, place, Nanos(due << TICK)),
            }
        }
    }

    /// Starts the timer of a connection, if it is not running.
    pub(super) fn arm(&mut self, now: Nanos, place: Place) {
        let flow = self.flows.get(place);
        if flow.deadline(now).is_none() {
            let due = flow.set_deadline(now);
            self.queue(place, due);
        }
    }

    /// Restarts the timer, or stops it if no bytes are owed.
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

    /// Processes a timeout: the guest did not acknowledge in time.
    fn expire(&mut self, now: Nanos, place: Place, due: Nanos) {
        let flow = self.flows.get(place);
        let sent_at = due.saturating_sub(flow.resend_after());
        // A guest that waits for its CPU has lost no data.
        let has_run = self.alive > sent_at;
        if has_run {
            // An acknowledged probe of a closed window never ends the connection.
            if flow.data.vm == flow.data.sent && std::mem::take(&mut flow.losses.duplicates) > 0 {
                flow.losses.resends = flow.losses.resends.min(SnoopConfig::RESENDS - 1);
            }
            if flow.losses.resends >= SnoopConfig::RESENDS {
                self.counts.stats.resets += 1;
                self.reset(place);
                return;
            }
            flow.losses.resends += 1;
            if flow.is_ahead() {
                self.rewind(place);
                self.note_lost(place);
            }
            let flow = self.flows.get(place);
            if flow.data.vm.is_before(flow.data.sent) {
                self.resend_first(place);
            } else {
                self.knock(place);
            }
        }
        self.rearm(now, place);
    }

    /// Retransmits the first segment that the guest has not acknowledged.
    pub(super) fn resend_first(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let first = self.store.at(flow.chain, flow.data.vm).map(|node| node.end);
        if let Some(end) = first {
            self.resend(place, end);
        }
    }

    /// Retransmits bytes that were sent and not acknowledged, up to `to`.
    pub(super) fn resend(&mut self, place: Place, to: Seq) {
        let flow = self.flows.get(place);
        let (vm, chain) = (flow.data.vm, flow.chain);
        let to = to.earliest(flow.data.sent).earliest(flow.windows.edge);
        let mut from = vm;
        while from.is_before(to) {
            let Some(end) = self.store.at(chain, from).map(|node| node.end) else {
                break;
            };
            let end = end.earliest(to);
            self.counts.stats.resent += 1;
            self.emit(place, from, end);
            from = end;
        }
        let flow = self.flows.get(place);
        flow.data.recover = from;
        if from != vm {
            flow.losses.resent = true;
            self.note_lost(place);
        }
    }

    /// Withholds the bytes that were sent to the guest and not acknowledged.
    pub(super) fn rewind(&mut self, place: Place) {
        self.flows.get(place).rewind();
        self.hold_fin(place);
    }

    /// Withholds a retained FIN while bytes before it wait for the guest's window.
    pub(super) fn hold_fin(&mut self, place: Place) {
        let flow = self.flows.get(place);
        if flow.state.closing.peer {
            let is_kept = self.store.at(flow.chain, flow.data.next).is_some();
            flow.state.closing.held |= is_kept;
        }
    }

    /// Lowers the limit beyond the guest's window after the guest lost a segment there.
    pub(super) fn note_lost(&mut self, place: Place) {
        let reach = self.reach;
        if self.flows.get(place).note_lost(reach) {
            self.counts.stats.narrowed += u64::from(reach != reach.less());
            self.reach = reach.less();
        }
    }

    /// Sends as much of the withheld data as the guest's window allows.
    pub(super) fn release(&mut self, now: Nanos, place: Place) {
        loop {
            let flow = self.flows.get(place);
            let sent = flow.data.sent;
            if !flow.withholds() {
                break;
            }
            let Some(node) = self.store.at(flow.chain, sent) else {
                return;
            };
            // A FIN is not counted in the bytes.
            let end = node.end.earliest(flow.data.next);
            let to = if end.is_after(flow.windows.edge) {
                // The part of a larger segment that fits.
                let mss = u32::from(flow.windows.mss).max(1);
                let room = if flow.windows.edge.is_after(sent) {
                    flow.windows.edge.since(sent)
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

    /// Sends the guest the peer's FIN, if it came in a segment without payload.
    fn release_last(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let next = flow.data.next;
        if !flow.state.closing.held || next.is_after(flow.windows.edge) {
            return;
        }
        flow.state.closing.held = false;
        if self.store.at(flow.chain, next).is_some() {
            flow.data.high = flow.data.high.latest(next + 1);
            self.emit_part(place, next, 0);
        }
    }

    /// Sends withheld bytes up to `to`; the last byte carries a FIN that came with it.
    fn advance(&mut self, place: Place, to: Seq) {
        let flow = self.flows.get(place);
        let from = flow.data.sent;
        flow.data.sent = to;
        self.counts.stats.resent += u64::from(flow.data.high.is_after(from));
        flow.data.high = flow.data.high.latest(to);
        if flow.state.closing.held && to == flow.data.next {
            let last = self.store.at(flow.chain, to);
            if last.is_some_and(|node| node.seq.is_before(to)) {
                flow.state.closing.held = false;
                flow.data.high = flow.data.high.latest(to + 1);
            }
        }
        self.emit(place, from, to);
    }

    /// Probes a guest with a closed window: with data, if the window has any room, or with an empty
    /// segment.
    fn knock(&mut self, place: Place) {
        let flow = self.flows.get(place);
        let (sent, edge, next) = (flow.data.sent, flow.windows.edge, flow.data.next);
        let end = self.store.at(flow.chain, sent).map(|node| node.end);
        match end {
            Some(end) if edge.is_after(sent) => {
                self.advance(place, end.earliest(next).earliest(edge));
            }
            _ => self.probe(place),
        }
    }

    /// Requests an acknowledgement from the guest (RFC 9293, 3.8.6.1) with an empty segment whose
    /// sequence number precedes the guest's next byte.
    pub(super) fn probe(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        // The guest may have dropped segments that were placed beyond its window.
        let before = if flow.is_ahead() {
            flow.data.vm
        } else {
            flow.data.sent
        };
        let bare = Bare {
            direction: Direction::ToGuest,
            flow: id,
            hash,
            link: flow.link,
            seq: before - 1,
            ack: flow.reply.peer_ack,
            flags: Flags::ACK,
            window: flow.windows.peer_window,
            timestamps: flow.stamps_to_guest(),
        };
        self.counts.stats.probes += 1;
        self.to_guest.push_back(F::bare(&self.maker, &bare));
    }

    fn emit(&mut self, place: Place, from: Seq, to: Seq) {
        self.emit_part(place, from, to.since(from));
    }

    /// Sends the guest `len` bytes from `from` on, with the peer's present acknowledgement and
    /// window.
    fn emit_part(&mut self, place: Place, from: Seq, len: u32) {
        let flow = self.flows.get(place);
        let node = self.store.at(flow.chain, from);
        let Some((node, frame)) = node.and_then(|node| Some((node, node.frame()?))) else {
            return;
        };
        let mut part = frame.part(from.since(node.seq), len);
        part.change(&Change {
            seq: from,
            ack: flow.reply.peer_ack,
            sacks_after: None,
            window: flow.windows.peer_window,
            timestamps: flow.stamps_to_guest(),
        });
        self.to_guest.push_back(part);
    }

    /// Resets a connection whose guest does not take the data that was acknowledged for it.
    fn reset(&mut self, place: Place) {
        let (id, hash) = (self.flows.key(place), self.flows.hash(place));
        let flow = self.flows.get(place);
        let bare = Bare {
            direction: Direction::ToGuest,
            flow: id,
            hash,
            link: flow.link,
            seq: flow.data.vm,
            ack: flow.reply.peer_ack,
            flags: Flags::RST.with(Flags::ACK),
            window: 0,
            timestamps: flow.stamps_to_guest(),
        };
        self.to_guest.push_back(F::bare(&self.maker, &bare));
        self.abandon(place);
    }
}

/// Queues a connection for `due`, unless it is queued for an earlier time.
#[inline]
pub(super) fn queue(timers: &mut Timers, flow: &mut Flow, place: Place, due: u64) {
    let after = (due as u32).wrapping_sub(flow.timer.queued).cast_signed();
    if flow.timer.queued == 0 || after < 0 {
        flow.timer.queued = due as u32;
        timers.push(due, place);
    }
}
