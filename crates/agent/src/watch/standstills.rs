//! Makes threads that the kernel does not run in their reservation normal threads for a time.

use super::Watcher;
use crate::class::Class;
use crate::desired::Desired;
use crate::guest::Guest;
use crate::standstill::{Reading, Standstill};
use std::collections::BTreeSet;
use tailbound_sys::root::Root;
use tailbound_sys::thread::{PolicyNumber, Tasks, ThreadId};

impl Watcher {
    /// Finds threads that stand still in their reservation, removes the reservation from the
    /// desired states of those that must be normal for now, and returns these.
    pub(super) fn release_standstills(&mut self, desired: &mut [Desired]) -> BTreeSet<ThreadId> {
        let now = self.now;
        let wanted: BTreeSet<_> = desired.iter().map(|wanted| wanted.thread).collect();
        self.standstills.retain(|thread| wanted.contains(&thread));
        let mut plain = BTreeSet::new();
        for wanted in desired {
            let Class::Periodic(reservation) = wanted.class else {
                continue;
            };
            let thread = wanted.thread;
            if !self.standstills.is_plain(now, thread)
                && let Some(reading) = reading(thread)
                && let Some(standstill) = self.standstills.look(now, thread, reservation, reading)
            {
                self.warn_of_standstill(wanted, standstill);
            }
            if self.standstills.is_plain(now, thread) {
                if self.standstills.has_given_up(thread) {
                    let guest = self.guest_of(thread);
                    let name = &wanted.name;
                    let message = format!(
                        "{name}: the kernel has not run it in its reservation again and again; it \
                         has none any more, until the guest starts anew or the configuration is read \
                         again"
                    );
                    self.failed(&guest, &message);
                }
                wanted.class = Class::Normal;
                plain.insert(thread);
            }
        }
        plain
    }

    fn warn_of_standstill(&self, wanted: &Desired, standstill: Standstill) {
        let cause_text = match standstill.plain {
            Some(plain) => format!("it has none for {plain}, and then again"),
            None => "it has none any more".to_owned(),
        };
        let (name, stood) = (&wanted.name, standstill.stood);
        tracing::warn!(
            "{name}: it could run, and the kernel has given it no CPU in its reservation for \
             {stood}; {cause_text}"
        );
        let guest = self.guest_of(wanted.thread);
        *self.lock().standstills.entry(guest).or_default() += 1;
    }

    /// The name of the guest that a thread belongs to.
    pub(super) fn guest_of(&self, thread: ThreadId) -> String {
        let has = |guest: &&Guest| guest.threads.iter().any(|own| own.id == thread);
        let guest = self.guests.iter().find(has).map(|guest| guest.name.clone());
        guest.unwrap_or_default()
    }
}

/// Returns a reading of a thread with a reservation; `None` if it has none or has exited.
fn reading(thread: ThreadId) -> Option<Reading> {
    let tasks = Tasks::open(&Root::default(), thread.pid).ok()?;
    let stat = tasks.stat(thread.tid).ok()??;
    let schedstat = tasks.schedstat(thread.tid).ok()??;
    (stat.start == thread.start && stat.policy == PolicyNumber::DEADLINE).then_some(Reading {
        is_ready: stat.state == 'R',
        run: schedstat.run,
    })
}
