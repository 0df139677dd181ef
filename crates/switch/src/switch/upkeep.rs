//! Keeps the agenda up to date: the work of a port after each event, and after each turn that served
//! it.

use super::Ports;
use super::agenda::{Timer, Work, earlier};
use super::guest::GuestPort;
use super::state::Interest;
use super::table::PortTable;
use crate::index::PortIndex;
use crate::port::{Outlook, Port, Presence};
use tailbound_units::Nanos;

impl PortTable {
    /// Sets whether ports are read at all; changes the work of all ports if that is new.
    pub(super) fn set_read(&mut self, is_read: bool) {
        if self.agenda_mut().replace_read(is_read) != is_read {
            self.note_all();
        }
    }

    /// Updates a port's work: after each event and each turn that served the port.
    pub(super) fn note(&mut self, port: PortIndex, ports: &Ports) {
        let outlook = ports[port.0].as_deref().map(Port::outlook);
        let (state, guest, agenda) = self.parts_mut(port);
        let is_pending = state.has_received();
        let mut is_open = true;
        let mut is_read = agenda.is_read();
        let mut is_resting = false;
        if let Some(guest) = guest {
            is_open = guest.ingress.is_open();
            is_read &= is_open && !guest.ingress.is_drained();
            is_resting = guest.ingress.is_resting();
            agenda.set_timer(Timer::Retry, port, guest.retry_at());
            if let Some(outlook) = &outlook
                && guest.notes_presence(outlook.presence)
            {
                agenda.set(Work::Moved, port, true);
            }
        }
        let is_ready = is_open && (is_pending || (is_read && state.inbound.readable));
        agenda.set(Work::Ready, port, is_ready);
        let interest = Interest {
            receive: is_read,
            transmit: state.outbound.full && !is_resting,
        };
        if state.interest != interest {
            state.interest = interest;
            agenda.set(Work::Changed, port, true);
        }
        let is_awaited = is_read && !is_pending;
        agenda.set_timer(Timer::Port, port, port_timer(outlook, is_awaited));
    }

    /// Does the same for a port that was only sent to, which changes neither the state of its
    /// guest's ingress nor its received frames.
    pub(super) fn note_sent(&mut self, port: PortIndex, ports: &Ports) {
        let outlook = ports[port.0].as_deref().map(Port::outlook);
        let (state, guest, agenda) = self.parts_mut(port);
        let mut is_resting = false;
        if let Some(guest) = guest {
            is_resting = guest.ingress.is_resting();
            if let Some(outlook) = &outlook
                && guest.notes_presence(outlook.presence)
            {
                agenda.set(Work::Moved, port, true);
            }
        }
        let transmit = state.outbound.full && !is_resting;
        if state.interest.transmit != transmit {
            state.interest.transmit = transmit;
            agenda.set(Work::Changed, port, true);
        }
        let is_awaited = state.interest.receive && !state.has_received();
        agenda.set_timer(Timer::Port, port, port_timer(outlook, is_awaited));
    }

    /// Updates the time at which a guest's ingress retries.
    pub(super) fn note_ingress(&mut self, port: PortIndex) {
        let retry = self.guest(port).and_then(GuestPort::retry_at);
        self.agenda_mut().set_timer(Timer::Retry, port, retry);
    }

    /// Notes that the guest of a port may have moved or arrived again.
    pub(super) fn note_presence(&mut self, port: PortIndex, ports: &Ports) {
        if let (_, Some(guest), agenda) = self.parts_mut(port)
            && let Some(opened) = ports[port.0].as_deref()
            && guest.notes_presence(opened.presence())
        {
            agenda.set(Work::Moved, port, true);
        }
    }

    /// Marks every port: the next turn visits all of them.
    fn note_all(&mut self) {
        let end = self.end();
        self.agenda_mut().reset(end);
        for port in self.ports() {
            self.note_ingress(port);
            let is_limited = self.guest(port).is_some_and(|it| it.limit.shaper.is_some());
            let release = is_limited.then_some(Nanos::ZERO);
            self.agenda_mut().set_timer(Timer::Release, port, release);
        }
    }

    /// Marks a guest's port for sending its queue. A full port is skipped until it is writable.
    pub(super) fn offer(&mut self, port: PortIndex) {
        let offered = !self[port].outbound.full;
        self.agenda_mut().set(Work::Sending, port, offered);
    }

    /// Returns true if the port may be read: not if its guest met backpressure or is throttled.
    pub(super) fn is_open(&self, port: PortIndex) -> bool {
        let guest = self.guest(port);
        guest.is_none_or(|guest| guest.ingress.is_open())
    }

    /// Returns true if the port of a guest is unread because it is drained.
    pub(super) fn is_drained(&self, port: PortIndex) -> bool {
        let guest = self.guest(port);
        guest.is_some_and(|guest| guest.ingress.is_drained())
    }
}

/// Returns the time of a port's own timer. A frame that arrives at a port of which none is awaited
/// does not wake the loop.
#[inline]
fn port_timer(outlook: Option<Outlook>, is_awaited: bool) -> Option<Nanos> {
    let outlook = outlook?;
    let receive = outlook.receive_at.filter(|_| is_awaited);
    earlier(outlook.flush_at, receive)
}

impl GuestPort {
    /// Returns the time at which the guest's ingress retries.
    #[inline]
    fn retry_at(&self) -> Option<Nanos> {
        let snoop = self.early.snoop.as_ref().and_then(|snoop| snoop.poll_at());
        earlier(snoop, self.ingress.poll_at())
    }

    /// Compares the guest's presence with that of its port; returns true if the guest may have moved
    /// or arrived again. The first presence of a guest that is here is no news.
    #[inline]
    fn notes_presence(&mut self, presence: Presence) -> bool {
        match (self.presence, presence) {
            (None, Presence::Here(_)) => {
                self.presence = Some(presence);
                false
            }
            (before, _) => before != Some(presence),
        }
    }
}

/// Notes that a port has nothing to do: if it woke the loop too often for that, it rests.
#[cold]
pub(super) fn note_idle_wake(now: Nanos, port: PortIndex, table: &mut PortTable) {
    let (state, guest) = table.both_mut(port);
    if let Some(until) = state.charge_idle_wake(now)
        && let Some(guest) = guest
    {
        guest.ingress.rest(until);
    }
}

/// Neither reads a port nor sends to it for the time `rest`, if that is not zero and the port shares
/// memory with its guest; returns true if so. Elsewhere the thread sleeps for want of the host's own
/// memory, which is no guest's doing.
pub(super) fn leave_alone(
    now: Nanos,
    port: PortIndex,
    rest: Nanos,
    shares_memory: bool,
    table: &mut PortTable,
) -> bool {
    if rest == Nanos::ZERO || !shares_memory {
        return false;
    }
    let until = now + rest;
    let (state, guest) = table.both_mut(port);
    state.outbound.barred_until = until;
    tracing::warn!(
        port = state.name,
        seconds = rest.0 / 1_000_000_000,
        "the packet loop slept again while it accessed this guest's memory: the guest's frames \
         wait this long, so that others' do not. Its VMM may free pages in use, or its memory \
         is swapped out: use preallocated memory without a balloon"
    );
    if let Some(guest) = guest {
        guest.ingress.throttle(until);
    }
    true
}
