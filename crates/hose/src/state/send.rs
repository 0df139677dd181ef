//! Datagrams to a peer, and their timing.

use super::{DATAGRAM, HoseState};
use crate::ids::{HostId, PeerIndex, SequenceNumber, TimeOfDay};
use crate::keys::KeyEpoch;
use crate::sender::SendingSide;
use crate::wire::{Entry, Header, MAX_DATAGRAM};
use std::mem;
use tailbound_units::Nanos;

/// Intervals until the rest of our list of machines is sent again to a peer that lacks it, if
/// nothing else is sent.
const REPEAT: u64 = 8;

/// Machines of our list in one transmission to a peer: some three datagrams. The next ones follow
/// with the next datagram.
const TOLD: usize = 64;

impl HoseState {
    /// Returns the time until the next datagram to a peer without new events.
    pub(super) fn until_next(&self, now: Nanos, index: PeerIndex) -> Nanos {
        let times = self.config.times();
        let peer = &self.view.peers[index];
        let active = self.sending.uses(index) || self.receiving.serves(index);
        let (revision, _) = self.view.locals.list();
        let quiet_until = self.sending.quiet_until(index);
        if now < quiet_until {
            return quiet_until.since(now);
        }
        let returns = times.commitment > Nanos::ZERO && self.sending.has_requests(index);
        let active = active || returns;
        if (active || peer.is_being_told()) && !peer.is_silent(now, times) {
            times.interval
        } else if peer.lacks(revision) {
            Nanos(times.interval.0 * REPEAT)
        } else {
            times.heartbeat()
        }
    }

    /// Changes the epoch towards a peer that would not accept the current one.
    pub(super) fn settle_epoch(&mut self, now: Nanos, today: TimeOfDay, index: PeerIndex) {
        let times = self.config.times();
        if self.view.peers[index].settle_epoch(now, times, today) {
            self.stats.epochs_changed += 1;
            let (mut cx, sending, _) = self.sides(now);
            sending.handle_own_restart(&mut cx, index);
        }
    }

    /// Sends a peer all pending entries, in one or more datagrams; nothing without a key, or while this host is silent
    /// towards it. Returns
    /// the cost: see [`super::AT_ONCE`].
    pub(super) fn send(
        &mut self,
        now: Nanos,
        index: PeerIndex,
        send: &mut impl FnMut(HostId, &[u8]),
    ) -> usize {
        // Where a pledge begins, this host is silent first.
        let is_quiet = |sending: &SendingSide| now < sending.quiet_until(index);
        if is_quiet(&self.sending) {
            return 1;
        }
        let pledge = self.renew_pledge(now, index);
        if is_quiet(&self.sending) {
            return 1;
        }
        let Some(keys) = self.view.peers[index].keys.clone() else {
            return 1;
        };
        let theirs = self.view.peers[index].latest_key(now, self.config.times());
        let mut entries = mem::take(&mut self.entries);
        entries.clear();
        self.push_machines(index, &mut entries);
        let (cx, sending, _) = self.sides(now);
        sending.take_requests(&cx, index, &mut entries);
        let first_grant = entries.len();
        self.receiving.push_grants(index, &mut entries);
        self.schedule.datagram_sent(now, index);

        // A lease counts from `echo_time`, which was before we heard it.
        let until = self.view.peers[index].time_heard + self.config.times().lease_counted();
        let (mut done, mut cost) = (0, 0);
        loop {
            let sequence = self.view.peers[index].next_sequence();
            let (epoch, key) = keys.for_host(theirs, sequence);
            let header = Header {
                key: *epoch,
                latest_key: keys.epoch(),
                ..self.header(now, index, sequence, pledge)
            };
            self.writer.start(&header);
            let rest = &entries[done..];
            let refused = rest.iter().position(|entry| !self.writer.push(entry));
            let fitting = refused.unwrap_or(rest.len());
            debug_assert!(
                fitting > 0 || rest.is_empty(),
                "any entry fits into a datagram of its own"
            );
            for place in done.max(first_grant)..done + fitting {
                let grant = place - first_grant;
                self.receiving
                    .grant_sent(index, grant, header.sequence, until);
            }
            let datagram = self.writer.finish(key);
            debug_assert!(datagram.len() <= MAX_DATAGRAM);
            send(header.to, datagram);
            cost += datagram.len() + DATAGRAM;
            self.stats.sent += 1;
            done += fitting;
            if done == entries.len() {
                break;
            }
        }
        self.entries = entries;
        cost
    }

    /// Adds the next machines of our list to the entries for a peer, if the peer lacks them and the
    /// list is complete.
    fn push_machines(&mut self, index: PeerIndex, entries: &mut Vec<Entry>) {
        let locals = &self.view.locals;
        let (revision, _) = locals.list();
        let peer = &mut self.view.peers[index];
        let next = if peer.lacks(revision) && !self.agenda.is_unannounced {
            let from = peer.told_up_to(revision);
            locals.push_announcements(from, TOLD, entries)
        } else {
            None
        };
        peer.tell_next(revision, next);
    }

    /// Returns the header of a datagram, without its keys.
    fn header(
        &self,
        now: Nanos,
        index: PeerIndex,
        sequence: SequenceNumber,
        pledge: bool,
    ) -> Header {
        let (revision, machines) = self.view.locals.list();
        let peer = &self.view.peers[index];
        Header {
            from: self.config.host,
            to: peer.id,
            key: KeyEpoch::OWN,
            latest_key: KeyEpoch::OWN,
            classes: self.config.classes,
            epoch: peer.epoch,
            sequence,
            time: now,
            echo_epoch: peer.window.epoch,
            echo_time: peer.time,
            revision,
            known: peer.revision(),
            machines,
            pledge,
        }
    }

    /// Returns whether the next datagram to a peer pledges, and applies the pledge. This host
    /// pledges while the peer receives its datagrams: otherwise the peer would not receive its
    /// requests either.
    fn renew_pledge(&mut self, now: Nanos, index: PeerIndex) -> bool {
        let length = self.config.times().pledge();
        let peer = &self.view.peers[index];
        let until = peer.time_heard + length;
        let hears_us = peer
            .echo
            .is_some_and(|echo| now.since(echo) <= Nanos(length.0 / 2));
        let pledge = (hears_us && until > now).then_some(until);
        let (mut cx, sending, _) = self.sides(now);
        sending.set_pledge(&mut cx, index, pledge);
        pledge.is_some()
    }
}
