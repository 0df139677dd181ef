//! What was asked at the control socket: each request is answered between packets, and a
//! change is a reload of its own, one after the other.

use super::reload::Wanted;
use super::sending::Trial;
use super::traced::Tracing;
use super::{Daemon, HostError, Instance, system};
use crate::config::{Change, ChangeError, ConfigError};
use crate::socket::{self, Asked, Outcome, Reply, SNOOP_FLOWS, Wrong};
use crate::wake::Signals;
use std::collections::VecDeque;
use tailbound_dataplane::GuestId;
use tailbound_units::Nanos;

/// Requests that wait for an answer, but for those that are to be shown something.
#[derive(Default)]
pub(super) struct Requests {
    /// Where they come from, if they may come from anywhere.
    server: Option<socket::Server>,
    /// There may be new ones.
    asked: bool,
    changes: VecDeque<(Change, Reply)>,
    /// Whose change is the reload that is under way.
    current: Option<Asker>,
    drains: Vec<Draining>,
    migrations: Vec<Migration>,
    pub(super) trials: Vec<Trial>,
    pub(super) tracing: Option<Tracing>,
}

/// A guest that is to move, once it is owed nothing.
struct Migration {
    guest: GuestId,
    until: Nanos,
    /// When what it is owed is counted next.
    next: Nanos,
    reply: Reply,
}

/// How often that is counted: it looks at every connection.
const COUNT: Nanos = Nanos::from_millis(10);

/// Who asked for a change, and the names of the guests that it is about.
struct Asker {
    reply: Reply,
    guests: Vec<String>,
}

/// Guests of which nothing more is received, until nothing of theirs waits.
struct Draining {
    guests: Vec<GuestId>,
    /// It is all of them, so that whatever waits for the uplink is theirs.
    all: bool,
    until: Nanos,
    reply: Reply,
}

/// Requests that wait for something at once, beside changes. Whoever asked may have gone, and they
/// wait for up to an hour all the same.
const MOST_WAITING: usize = 64;

impl Requests {
    /// Begins to serve the control socket, where there is one.
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

    /// Somebody may have asked.
    pub(super) fn handle_woken(&mut self) {
        self.asked = true;
    }

    /// Who asked, where another request may wait beside those that do; the others are told.
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

    /// When there is something to do, whatever happens.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        let drains = self.drains.iter().map(|draining| draining.until);
        let migrations = self.migrations.iter().map(|migration| migration.next);
        let trials = self.trials.iter().map(Trial::poll_at);
        let trace = self.tracing.iter().map(Tracing::poll_at);
        drains.chain(migrations).chain(trials).chain(trace).min()
    }
}

impl Daemon {
    /// Takes what was asked; where no reload is under way, begins with the next change.
    pub(super) fn take_requests(&mut self, now: Nanos) {
        if std::mem::take(&mut self.requests.asked) {
            let server = self.requests.server.as_ref().into_iter();
            let asked: Vec<_> = server.flat_map(socket::Server::asked).collect();
            for asked in asked {
                match asked {
                    Asked::Show(reply) => self.scrapes.show(reply),
                    Asked::Change(change, reply) => {
                        self.requests.changes.push_back((change, reply));
                    }
                    Asked::Drain {
                        guest,
                        undo,
                        patience,
                        reply,
                    } => self.drain_guests(now, guest.as_deref(), undo, now + patience, reply),
                    Asked::MigratePrepare {
                        guest,
                        undo,
                        patience,
                        reply,
                    } => self.prepare_migration(&guest, undo, now + patience, reply),
                    Asked::ShowSnoop { guest, reply } => self.show_snoop(&guest, reply),
                    Asked::Trace {
                        guest,
                        patience,
                        reply,
                    } => self.begin_tracing(now, &guest, patience, reply),
                    Asked::Send {
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
            self.prepare(Wanted::Change(change));
        }
    }

    /// Leaves ports unread, or has them read again.
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

    /// A guest by its name; whoever asked is told where there is none.
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

    /// Acknowledges TCP early for a guest no more, or again.
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

    /// Answers where a guest that is to move is owed nothing any more, or that takes too
    /// long.
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

    /// Answers where nothing of a drained guest's waits any longer, or that takes too long.
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

    /// Answers the request for the reload that ended. Returns the user that asked; `None` for
    /// a signal.
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

    /// Those of some guests that are not held to what they are to be guaranteed.
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

/// Why a change was refused, with each mistake where it stands.
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
