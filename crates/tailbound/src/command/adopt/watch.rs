//! `tailbound adopt --policy FILE --watch`: follows guests that appear and go.
//!
//! The kernel's notifications about devices trigger a look at the host: they come from every runtime,
//! and none is lost when a runtime is restarted. Names and labels of guests are in the runtimes' files.
//! A device appears before its guest is complete, so each notification has several looks, and there
//! is one every [`UNASKED`] without a notification.

use super::report::Outcome;
use super::{Places, policy};
use crate::exit::{Exit, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tailbound_adopt::policy::Policy;
use tailbound_sys::network::LinkEvents;

/// The times of looks after a notification.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];
/// The time of the next look without a notification.
const UNASKED: Duration = Duration::from_secs(30);
/// The longest time until a signal is noticed.
const TICK: Duration = Duration::from_millis(500);
/// Largest number of planned looks: a host that starts many guests is looked at all the time.
const MAX_LOOKS: usize = 8;

pub(super) fn run(places: &Places, file: &Path) -> Result<Exit, Failure> {
    let policy = Policy::load(file)?;
    let [ends, reloads] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&ends))?;
    }
    flag::register(SIGHUP, Arc::clone(&reloads))?;
    let events = LinkEvents::open()
        .map_err(|error| Failure::new(format!("cannot follow interfaces: {error}")))?;
    let mut watcher = Watcher {
        places,
        policy,
        messages: BTreeMap::new(),
    };
    // The first look is not forgiven: a mistake of the set-up is an error of the command.
    watcher.look()?;
    tracing::info!(policy = %file.display(), "follows the guests of this host");
    let mut looks = BTreeSet::from([Instant::now() + UNASKED]);
    while !ends.load(Ordering::Relaxed) {
        if reloads.swap(false, Ordering::Relaxed) {
            watcher.reload(file);
            looks.insert(Instant::now());
        }
        let next = looks.first().copied().unwrap_or_else(Instant::now);
        let patience = next.saturating_duration_since(Instant::now()).min(TICK);
        let now = if events.wait(patience)? {
            let now = Instant::now();
            if looks.len() < MAX_LOOKS {
                looks.extend(LOOKS.map(|after| now + after));
            }
            now
        } else {
            Instant::now()
        };
        if looks.first().is_some_and(|at| *at <= now) {
            looks.retain(|at| *at > now);
            looks.insert(now + UNASKED);
            if let Err(error) = watcher.look() {
                tracing::error!("{}", error.message());
            }
        }
    }
    Ok(Exit::Holds)
}

struct Watcher<'w> {
    places: &'w Places,
    policy: Policy,
    /// The last message about each guest, which is not repeated.
    messages: BTreeMap<String, String>,
}

impl Watcher<'_> {
    fn reload(&mut self, file: &Path) {
        match Policy::load(file) {
            Ok(policy) => {
                self.policy = policy;
                self.messages.clear();
                tracing::info!(policy = %file.display(), "read again");
            }
            Err(error) => tracing::error!("{error}; the policy stays as it was"),
        }
    }

    fn look(&mut self) -> Result<(), Failure> {
        let reports = policy::apply(self.places, &self.policy, false)?;
        let mut messages = BTreeMap::new();
        for report in reports {
            let guest = report.guest;
            match report.outcome {
                Outcome::Adopted => tracing::info!(guest, "adopted"),
                Outcome::Released => tracing::info!(guest, "released"),
                Outcome::Refused(why) | Outcome::Failed(why) => {
                    if self.messages.get(&report.key) != Some(&why) {
                        tracing::warn!(guest, "not adopted: {why}");
                    }
                    messages.insert(report.key, why);
                }
                Outcome::Planned | Outcome::Unchanged | Outcome::Absent => {}
            }
        }
        self.messages = messages;
        Ok(())
    }
}
