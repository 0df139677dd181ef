//! Requests at the control socket: each is answered between packets. A change is a reload of its
//! own, and changes are applied one after the other.

use super::clock::Clock;
use super::feed::Feed;
use super::named::{guest_named, refuse_unknown};
use super::traced::Traces;
use super::trial::Trials;
use super::{HostError, system};
use crate::config::{Change, ChangeError, ConfigError};
use crate::guarantees::Guarantees;
use crate::inventory::Inventory;
use crate::socket::{self, LoopRequest, Outcome, Reply, SNOOP_FLOWS, Wrong};
use crate::wake::Signals;
use std::collections::VecDeque;
use std::os::unix::net::UnixListener;
use tailbound_dataplane::GuestId;
use tailbound_switch::{GuestRef, Ports, Switch};
use tailbound_units::Nanos;

/// Requests that wait for an answer, except for requests to show something.
#[derive(Default)]
pub(super) struct Requests {
    /// The server of the control socket, if there is one.
    server: Option<socket::Server>,
    /// True if there may be new requests.
    has_news: bool,
    changes: VecDeque<(Change, Reply)>,
    /// The request of the reload in progress.
    current: Option<Asker>,
    drains: Vec<PendingDrain>,
    migrations: Vec<Migration>,
    trials: Trials,
    traces: Traces,
}

/// A guest that is about to migrate, once its early acknowledged data is delivered.
struct Migration {
    guest: GuestId,
    until: Nanos,
    /// The time of the next check.
    next: Nanos,
    reply: Reply,
}

/// The interval of these checks: each looks at every connection.
const COUNT: Nanos = Nanos::from_millis(10);

/// The sender of a change, and the names of the changed guests.
struct Asker {
    reply: Reply,
    guests: Vec<String>,
}

/// Guests whose ports are not read, until none of their frames is queued.
struct PendingDrain {
    guests: Vec<GuestId>,
    /// True for all guests: then all frames that wait for the uplink belong to them.
    all: bool,
    until: Nanos,
    reply: Reply,
}

/// Most waiting requests, without changes. Their senders may be gone; the requests wait for up to
/// an hour nevertheless.
const MOST_WAITING: usize = 64;

impl Requests {
    /// Starts to serve the control socket, if there is one.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(super) fn serve(
        listener: Option<UnixListener>,
        signals: &Signals,
    ) -> Result<Self, HostError> {
        let server = listener.map(|listener| socket::Server::start(listener, signals.waker()));
        let server = server.transpose();
        Ok(Self {
            server: server.map_err(system("serve the control socket"))?,
            ..Self::default()
        })
    }

    /// Notes that there may be new requests.
    pub(super) fn handle_woken(&mut self) {
        self.has_news = true;
    }

    /// Returns the reply if another request may wait; else the request is refused and the result is
    /// `None`.
    fn room(&self, reply: Reply) -> Option<Reply> {
        let waiting = self.drains.len() + self.migrations.len() + self.trials.len();
        if waiting < MOST_WAITING {
            return Some(reply);
        }
        reply.done(Outcome::refused(format!(
            "{waiting} drain requests are pending, which is the limit; retry after one of them \
                has ended"
        )));
        None
    }

    /// Returns the time of the next event, if no other comes first.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        let drains = self.drains.iter().map(|draining| draining.until);
        let migrations = self.migrations.iter().map(|migration| migration.next);
        let others = [self.trials.poll_at(), self.traces.poll_at()];
        let others = others.into_iter().flatten();
        drains.chain(migrations).chain(others).min()
    }

    /// Takes new requests.
    pub(super) fn take_new(
        &mut self,
        now: Nanos,
        switch: &mut Switch,
        ports: &Ports,
        feed: &mut Feed,
        inventory: &Inventory,
    ) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let server = self.server.as_ref().into_iter();
        let asked: Vec<_> = server.flat_map(socket::Server::asked).collect();
        for asked in asked {
            match asked {
                LoopRequest::Show(reply) => feed.show(reply),
                LoopRequest::Change(change, reply) => self.changes.push_back((change, reply)),
                LoopRequest::Drain {
                    guest,
                    undo,
                    patience,
                    reply,
                } => {
                    let order = Order {
                        guest: guest.as_deref(),
                        undo,
                        until: now + patience,
                        reply,
                    };
                    self.drain_guests(now, order, switch, ports);
                }
                LoopRequest::MigratePrepare {
                    guest,
                    undo,
                    patience,
                    reply,
                } => self.prepare_migration(&guest, undo, now + patience, switch, reply),
                LoopRequest::ShowSnoop { guest, reply } => show_snoop(switch, &guest, reply),
                LoopRequest::Trace {
                    guest,
                    patience,
                    reply,
                } => self
                    .traces
                    .begin(now, &guest, now + patience, switch, reply),
                LoopRequest::Send {
                    sending,
                    patience,
                    reply,
                } => {
                    if let Some(reply) = self.room(reply) {
                        let until = now + patience;
                        (self.trials).begin(now, &sending, until, switch, inventory, reply);
                    }
                }
            }
        }
    }

    /// Returns the next change of guests. Call it only if no reload is in progress, and then answer
    /// the change by [`Self::answer_change`].
    pub(super) fn next_change(&mut self) -> Option<Change> {
        let (change, reply) = self.changes.pop_front()?;
        let guests = match &change {
            Change::Add { text, .. } => crate::config::names_in(text),
            Change::Remove { name } => vec![name.clone()],
        };
        self.current = Some(Asker { reply, guests });
        Some(change)
    }

    /// Sends trial frames, and ends a trace that is complete.
    pub(super) fn poll_frames(
        &mut self,
        now: Nanos,
        switch: &mut Switch,
        ports: &Ports,
        clock: &Clock,
    ) {
        self.trials.poll(now, switch, ports);
        self.traces.poll(now, switch, clock);
    }

    /// Stops reading guests' ports, or reads them again.
    fn drain_guests(&mut self, now: Nanos, order: Order<'_>, switch: &mut Switch, ports: &Ports) {
        let Order {
            guest,
            undo,
            until,
            reply,
        } = order;
        let guests = switch.guests();
        let guests = guests.filter(|(_, name)| guest.is_none_or(|guest| guest == *name));
        let guests: Vec<_> = guests.map(|(id, _)| id).collect();
        if let Some(name) = guest
            && guests.is_empty()
        {
            return refuse_unknown(switch, name, reply);
        }
        for id in &guests {
            if let Some(mut guest) = switch.guest_mut(*id) {
                guest.set_drained(!undo, ports);
            }
        }
        let name = guest.unwrap_or("all of them");
        tracing::info!(guest = name, drained = !undo, "reading from the port");
        if undo {
            return reply.done(Outcome::Drained { waiting: false });
        }
        let Some(reply) = self.room(reply) else {
            return;
        };
        self.drains.push(PendingDrain {
            guests,
            all: guest.is_none(),
            until,
            reply,
        });
        self.poll_drains(now, switch, ports);
    }

    /// Stops acknowledging TCP early for a guest, or starts again.
    fn prepare_migration(
        &mut self,
        guest: &str,
        undo: bool,
        until: Nanos,
        switch: &mut Switch,
        reply: Reply,
    ) {
        let Some((id, reply)) = guest_named(switch, guest, reply) else {
            return;
        };
        // One that nothing is acknowledged for may move at once.
        let owed = switch.guest_mut(id);
        let owed = owed.and_then(|mut guest| guest.drain_snoop(undo));
        let owed = owed.unwrap_or_default();
        tracing::info!(
            guest,
            drained = !undo,
            owed = owed.bytes,
            "whether TCP is acknowledged early for a guest"
        );
        if undo || owed.is_done() {
            return reply.done(Outcome::Prepared { flows: 0, bytes: 0 });
        }
        let Some(reply) = self.room(reply) else {
            return;
        };
        self.migrations.push(Migration {
            guest: id,
            until,
            next: Nanos::ZERO,
            reply,
        });
    }

    /// Answers if a migrating guest's data is delivered, or if that takes too long.
    fn poll_migrations(&mut self, now: Nanos, switch: &mut Switch) {
        for mut migration in std::mem::take(&mut self.migrations) {
            if now < migration.next && now < migration.until {
                self.migrations.push(migration);
                continue;
            }
            let owed = switch.guest_mut(migration.guest);
            let owed = owed.and_then(|mut guest| guest.drain_snoop(false));
            let owed = owed.unwrap_or_default();
            if owed.is_done() || now >= migration.until {
                migration.reply.done(Outcome::Prepared {
                    flows: owed.flows,
                    bytes: owed.bytes,
                });
            } else {
                migration.next = now + COUNT;
                self.migrations.push(migration);
            }
        }
    }

    /// Answers if none of a drained guest's frames is queued, or if that takes too long.
    pub(super) fn poll_drains(&mut self, now: Nanos, switch: &mut Switch, ports: &Ports) {
        self.poll_migrations(now, switch);
        for draining in std::mem::take(&mut self.drains) {
            let mut guests = draining.guests.iter();
            let waiting = guests.any(|guest| switch.guest(*guest).is_some_and(GuestRef::waits))
                || draining.all && switch.waits_for_uplink(ports);
            if waiting && now < draining.until {
                self.drains.push(draining);
            } else {
                draining.reply.done(Outcome::Drained { waiting });
            }
        }
    }

    /// Answers the request for the reload that ended. Returns the user of the request; `None` for a
    /// signal.
    pub(super) fn answer_change(
        &mut self,
        result: Result<bool, &HostError>,
        switch: &Switch,
        guarantees: &Guarantees,
    ) -> Option<u32> {
        let Asker { reply, guests } = self.current.take()?;
        let uid = reply.uid();
        reply.done(match result {
            Ok(changed) => Outcome::Done {
                changed,
                unguaranteed: unguaranteed(&guests, switch, guarantees),
            },
            Err(error) => refused(error),
        });
        Some(uid)
    }
}

/// A request to stop reading a guest's port, or all guests' ports.
struct Order<'d> {
    /// `None` for all guests.
    guest: Option<&'d str>,
    undo: bool,
    until: Nanos,
    reply: Reply,
}

/// Shows the connections of a guest that are acknowledged early.
fn show_snoop(switch: &Switch, guest: &str, reply: Reply) {
    let Some((id, reply)) = guest_named(switch, guest, reply) else {
        return;
    };
    let Some(flows) = switch.guest(id).and_then(GuestRef::snoop_flows) else {
        return reply.done(Outcome::refused(format!(
            "early acknowledgement is disabled for {guest}; set `snoop = \"retaining\"`"
        )));
    };
    let mut count = 0;
    let counted = flows.inspect(|_| count += 1);
    let mut shown = Vec::new();
    for flow in counted {
        if shown.len() < SNOOP_FLOWS {
            shown.push(flow.into());
        }
    }
    reply.done(Outcome::Snoop {
        count,
        flows: shown,
    });
}

/// Returns those of some guests whose guarantee is not in force.
fn unguaranteed(names: &[String], switch: &Switch, guarantees: &Guarantees) -> Vec<String> {
    let guests = switch.guests().zip(guarantees.wanted());
    let refused = guests.filter(|((id, name), wanted)| {
        wanted.is_some()
            && switch.guarantee(*id) != wanted.as_ref()
            && names.iter().any(|known| known == name)
    });
    refused.map(|((_, name), _)| name.to_owned()).collect()
}

/// Returns the outcome of a refused change, with each mistake and its place.
fn refused(error: &HostError) -> Outcome {
    let mistakes = |error: &ConfigError| {
        let mistakes = error.mistakes();
        mistakes
            .map(|(file, mistake)| Wrong::of(file, mistake))
            .collect()
    };
    Outcome::Refused {
        message: error.to_string(),
        mistakes: match error {
            HostError::Config(error) | HostError::Change(ChangeError::Config(error)) => {
                mistakes(error)
            }
            _ => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_requests_are_bounded_when_no_client_reads() {
        let mut requests = Requests::default();
        for number in 0..1_000 {
            let Some(reply) = requests.room(Reply::without_client()) else {
                assert_eq!(number, MOST_WAITING);
                return;
            };
            requests.drains.push(PendingDrain {
                guests: Vec::new(),
                all: true,
                until: Nanos::from_secs(3_600),
                reply,
            });
        }
        panic!("a thousand wait");
    }
}
