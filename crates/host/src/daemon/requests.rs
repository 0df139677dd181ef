//! Requests at the control socket: each is answered between packets. A change is a reload of its
//! own, and changes are applied one after the other.

use super::reload::ReloadRequest;
use super::sending::Trial;
use super::traced::Tracing;
use super::{Daemon, HostError, Instance, system};
use crate::config::{Change, ChangeError, ConfigError};
use crate::socket::{self, LoopRequest, Outcome, Reply, SNOOP_FLOWS, Wrong};
use crate::wake::Signals;
use std::collections::VecDeque;
use tailbound_dataplane::GuestId;
use tailbound_units::Nanos;

/// Requests that wait for an answer, except for requests to show something.
#[derive(Default)]
pub(super) struct Requests {
    /// The server of the control socket, if there is one.
    server: Option<socket::Server>,
    /// True if there may be new requests.
    asked: bool,
    changes: VecDeque<(Change, Reply)>,
    /// The request of the reload in progress.
    current: Option<Asker>,
    drains: Vec<Draining>,
    migrations: Vec<Migration>,
    pub(super) trials: Vec<Trial>,
    pub(super) tracing: Option<Tracing>,
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
struct Draining {
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
    pub(super) fn serve(
        instance: Option<&mut Instance>,
        signals: &Signals,
    ) -> Result<Self, HostError> {
        let listener = instance.and_then(|instance| instance.control.take());
        let server = listener.map(|listener| socket::Server::start(listener, signals.waker()));
        let server = server.transpose();
        Ok(Self {
            server: server.map_err(system("serve the control socket"))?,
            ..Self::default()
        })
    }

    /// Notes that there may be new requests.
    pub(super) fn handle_woken(&mut self) {
        self.asked = true;
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
        let trials = self.trials.iter().map(Trial::poll_at);
        let trace = self.tracing.iter().map(Tracing::poll_at);
        drains.chain(migrations).chain(trials).chain(trace).min()
    }
}

impl Daemon {
    /// Takes new requests, and begins the next change if no reload is in progress.
    pub(super) fn take_requests(&mut self, now: Nanos) {
        if std::mem::take(&mut self.requests.asked) {
            let server = self.requests.server.as_ref().into_iter();
            let asked: Vec<_> = server.flat_map(socket::Server::asked).collect();
            for asked in asked {
                match asked {
                    LoopRequest::Show(reply) => self.scrapes.show(reply),
                    LoopRequest::Change(change, reply) => {
                        self.requests.changes.push_back((change, reply));
                    }
                    LoopRequest::Drain {
                        guest,
                        undo,
                        patience,
                        reply,
                    } => self.drain_guests(now, guest.as_deref(), undo, now + patience, reply),
                    LoopRequest::MigratePrepare {
                        guest,
                        undo,
                        patience,
                        reply,
                    } => self.prepare_migration(&guest, undo, now + patience, reply),
                    LoopRequest::ShowSnoop { guest, reply } => self.show_snoop(&guest, reply),
                    LoopRequest::Trace {
                        guest,
                        patience,
                        reply,
                    } => self.begin_tracing(now, &guest, patience, reply),
                    LoopRequest::Send {
                        sending,
                        patience,
                        reply,
                    } => {
                        if let Some(reply) = self.requests.room(reply) {
                            self.begin_trial(now, &sending, patience, reply);
                        }
                    }
                }
            }
        }
        if self.reloading.is_none()
            && let Some((change, reply)) = self.requests.changes.pop_front()
        {
            let guests = match &change {
                Change::Add { text, .. } => crate::config::names_in(text),
                Change::Remove { name } => vec![name.clone()],
            };
            self.requests.current = Some(Asker { reply, guests });
            self.prepare(ReloadRequest::Change(change));
        }
    }

    /// Stops reading guests' ports, or reads them again.
    fn drain_guests(
        &mut self,
        now: Nanos,
        guest: Option<&str>,
        undo: bool,
        until: Nanos,
        reply: Reply,
    ) {
        let guests = self.switch.guests();
        let guests = guests.filter(|(_, name)| guest.is_none_or(|guest| guest == *name));
        let guests: Vec<_> = guests.map(|(id, _)| id).collect();
        if let Some(name) = guest
            && guests.is_empty()
        {
            let known: Vec<_> = self.switch.guests().map(|(_, name)| name).collect();
            let unknown = tailbound_document::unknown_word("guest", name, &known);
            return reply.done(Outcome::refused(unknown));
        }
        for id in &guests {
            self.switch.set_drained(*id, !undo, &self.ports);
        }
        let name = guest.unwrap_or("all of them");
        tracing::info!(guest = name, drained = !undo, "reading from the port");
        if undo {
            return reply.done(Outcome::Drained { waiting: false });
        }
        let Some(reply) = self.requests.room(reply) else {
            return;
        };
        self.requests.drains.push(Draining {
            guests,
            all: guest.is_none(),
            until,
            reply,
        });
        self.poll_drains(now);
    }

    /// Returns a guest by its name; if there is none, the request is refused.
    pub(super) fn guest_named(&self, name: &str, reply: Reply) -> Option<(GuestId, Reply)> {
        let mut guests = self.switch.guests();
        if let Some((id, _)) = guests.find(|(_, known)| *known == name) {
            return Some((id, reply));
        }
        let known: Vec<_> = self.switch.guests().map(|(_, name)| name).collect();
        let unknown = tailbound_document::unknown_word("guest", name, &known);
        reply.done(Outcome::refused(unknown));
        None
    }

    /// Stops acknowledging TCP early for a guest, or starts again.
    fn prepare_migration(&mut self, guest: &str, undo: bool, until: Nanos, reply: Reply) {
        let Some((id, reply)) = self.guest_named(guest, reply) else {
            return;
        };
        // One that nothing is acknowledged for may move at once.
        let owed = self.switch.drain_snoop(id, undo).unwrap_or_default();
        tracing::info!(
            guest,
            drained = !undo,
            owed = owed.bytes,
            "whether TCP is acknowledged early for a guest"
        );
        if undo || owed.is_done() {
            return reply.done(Outcome::Prepared { flows: 0, bytes: 0 });
        }
        let Some(reply) = self.requests.room(reply) else {
            return;
        };
        self.requests.migrations.push(Migration {
            guest: id,
            until,
            next: Nanos::ZERO,
            reply,
        });
    }

    /// Answers if a migrating guest's data is delivered, or if that takes too long.
    fn poll_migrations(&mut self, now: Nanos) {
        for mut migration in std::mem::take(&mut self.requests.migrations) {
            if now < migration.next && now < migration.until {
                self.requests.migrations.push(migration);
                continue;
            }
            let owed = self.switch.drain_snoop(migration.guest, false);
            let owed = owed.unwrap_or_default();
            if owed.is_done() || now >= migration.until {
                migration.reply.done(Outcome::Prepared {
                    flows: owed.flows,
                    bytes: owed.bytes,
                });
            } else {
                migration.next = now + COUNT;
                self.requests.migrations.push(migration);
            }
        }
    }

    fn show_snoop(&self, guest: &str, reply: Reply) {
        let Some((id, reply)) = self.guest_named(guest, reply) else {
            return;
        };
        let Some(flows) = self.switch.snoop_flows(id) else {
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

    /// Answers if none of a drained guest's frames is queued, or if that takes too long.
    pub(super) fn poll_drains(&mut self, now: Nanos) {
        self.poll_migrations(now);
        if self.requests.drains.is_empty() {
            return;
        }
        for draining in std::mem::take(&mut self.requests.drains) {
            let mut guests = draining.guests.iter();
            let waiting = guests.any(|guest| self.switch.waits_of(*guest))
                || draining.all && self.switch.waits_for_uplink(&self.ports);
            if waiting && now < draining.until {
                self.requests.drains.push(draining);
            } else {
                draining.reply.done(Outcome::Drained { waiting });
            }
        }
    }

    /// Answers the request for the reload that ended. Returns the user of the request; `None` for a
    /// signal.
    pub(super) fn answer_change(&mut self, result: Result<bool, &HostError>) -> Option<u32> {
        let Asker { reply, guests } = self.requests.current.take()?;
        let uid = reply.uid();
        reply.done(match result {
            Ok(changed) => Outcome::Done {
                changed,
                unguaranteed: self.unguaranteed(&guests),
            },
            Err(error) => refused(error),
        });
        Some(uid)
    }

    /// Returns those of some guests whose guarantee is not in force.
    fn unguaranteed(&self, names: &[String]) -> Vec<String> {
        let guests = self.switch.guests().zip(self.guarantees.wanted());
        let refused = guests.filter(|((id, name), wanted)| {
            wanted.is_some()
                && self.switch.guarantee(*id) != wanted.as_ref()
                && names.iter().any(|known| known == name)
        });
        refused.map(|((_, name), _)| name.to_owned()).collect()
    }
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
    fn requests_that_wait_are_few_though_nobody_hears_their_answers() {
        let mut requests = Requests::default();
        for number in 0..1_000 {
            let Some(reply) = requests.room(Reply::to_nobody()) else {
                assert_eq!(number, MOST_WAITING);
                return;
            };
            requests.drains.push(Draining {
                guests: Vec::new(),
                all: true,
                until: Nanos::from_secs(3_600),
                reply,
            });
        }
        panic!("a thousand wait");
    }
}
