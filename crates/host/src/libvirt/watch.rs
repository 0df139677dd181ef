//! Follows the events of libvirt domains: metadata may change while a domain is running, and
//! libvirt calls no hook for that.
//!
//! For each event, the domain's present XML is read, and its guests are changed to that state. So a
//! late or repeated event does no harm, and the last event of a domain applies its last state.
//! After libvirt was away, all domains are read: that applies the changes in between, and removes
//! the guests of domains that have stopped.

use super::ask::{AskError, DomainClient};
use super::domain::Domain;
use super::hook::no_room;
use super::virsh::{Event, VIRSH, Virsh};
use crate::socket::{Client, ClientError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tailbound_sys::process::{Child, find_program};

/// Pause before a failed request is repeated, and the longest time until a signal is noticed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The longest time until `virsh` receives events. Changes within that time are found by reading
/// all domains once more.
const LISTENING: Duration = Duration::from_secs(3);

/// Reason why domains cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The command is missing.
    #[error(
        "{VIRSH} is not installed; install libvirt-clients (Debian) or libvirt-client (Fedora)"
    )]
    NoVirsh,
    /// The system refused something.
    #[error("cannot {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Updates the guests of the domains at `uri` with their metadata, until SIGTERM or SIGINT.
/// `connect` connects to the daemon. Call this from the main thread.
///
/// # Errors
/// The watch cannot begin. If libvirt or a daemon is away, the watch waits for it.
pub fn watch(
    uri: &str,
    connect: &dyn Fn() -> Result<Client, ClientError>,
) -> Result<(), WatchError> {
    if find_program(VIRSH).is_none() {
        return Err(WatchError::NoVirsh);
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        let registered = flag::register(signal, Arc::clone(&ends));
        registered.map_err(|source| WatchError::System {
            step: "catch signals",
            source,
        })?;
    }
    let mut watcher = Watcher {
        virsh: Virsh { uri },
        connect,
        due: BTreeSet::new(),
        logged_problems: BTreeMap::new(),
    };
    while !ends.load(Ordering::Relaxed) {
        match watcher.listen(&ends) {
            Ok(()) => tracing::warn!(uri, "libvirt is away; it is looked for again"),
            Err(error) => tracing::warn!(uri, %error, "libvirt cannot be asked for events"),
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    Ok(())
}

struct Watcher<'c> {
    virsh: Virsh<'c>,
    connect: &'c dyn Fn() -> Result<Client, ClientError>,
    /// Domains whose guests may be out of date.
    due: BTreeSet<String>,
    /// The last message about each domain, which is not repeated.
    logged_problems: BTreeMap<String, String>,
}

impl Watcher<'_> {
    /// Listens until libvirt is away, or `ends` is set.
    fn listen(&mut self, ends: &AtomicBool) -> io::Result<()> {
        let (tell, events) = mpsc::channel();
        let child: Child = self.virsh.events(tell)?;
        let mut all_at = Some(Instant::now() + LISTENING);
        self.all();
        while !ends.load(Ordering::Relaxed) {
            match events.recv_timeout(RETRY_PAUSE) {
                Ok(Event::Changed(name)) => {
                    self.due.insert(name);
                    // Those that came meanwhile are of the same moment.
                    for event in events.try_iter() {
                        match event {
                            Event::Changed(name) => drop(self.due.insert(name)),
                            Event::Unclear => self.all(),
                            Event::Ended => return Ok(()),
                        }
                    }
                }
                Ok(Event::Unclear) => self.all(),
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if all_at.is_some_and(|at| at < Instant::now()) {
                all_at = None;
                self.all();
            }
            self.settle();
        }
        drop(child);
        Ok(())
    }

    /// Marks every domain as possibly changed.
    fn all(&mut self) {
        match self.virsh.names() {
            Ok(names) => self.due.extend(names),
            Err(error) => tracing::warn!(%error, "libvirt does not list its domains"),
        }
    }

    /// Updates the guests of changed domains. Those whose daemon is away stay marked.
    fn settle(&mut self) {
        for name in std::mem::take(&mut self.due) {
            let problem = match self.follow(&name) {
                Ok(problem) => problem,
                Err(error @ AskError::Client { .. }) => {
                    self.due.insert(name.clone());
                    Some(error.to_string())
                }
                Err(error) => Some(error.to_string()),
            };
            self.log_problem(name, problem);
        }
    }

    /// Logs a mistake of a domain, once.
    fn log_problem(&mut self, name: String, problem: Option<String>) {
        let Some(problem) = problem else {
            self.logged_problems.remove(&name);
            return;
        };
        if self.logged_problems.get(&name) != Some(&problem) {
            tracing::error!("{problem}");
            self.logged_problems.insert(name, problem);
        }
    }

    /// Updates the guests of a domain to the state of its metadata. Returns a mistake in the
    /// domain, which needs no further request to the daemon.
    fn follow(&self, name: &str) -> Result<Option<String>, AskError> {
        let Some(domain) = self.domain(name) else {
            return Ok(None);
        };
        let domain = match domain {
            Ok(domain) => domain,
            Err(wrong) => return Ok(Some(wrong)),
        };
        if domain.guests().next().is_none() {
            return Ok(None);
        }
        let mut client = self.domain_client(&domain)?;
        if domain.runs {
            let unguaranteed = client.change()?;
            return Ok(unguaranteed
                .first()
                .map(|guest| format!("domain {name}: {}", no_room(guest))));
        }
        if !client.remove()? {
            return Ok(None);
        }
        tracing::info!(domain = name, "removed what it had left behind");
        // It may have been started while it was removed.
        if let Some(Ok(domain)) = self.domain(name)
            && domain.runs
        {
            self.domain_client(&domain)?.add()?;
        }
        Ok(None)
    }

    /// Returns the present state of a domain; `None` if there is none, or libvirt is away.
    fn domain(&self, name: &str) -> Option<Result<Domain, String>> {
        let xml = self.virsh.xml(name);
        let xml = xml.inspect_err(|error| tracing::debug!(domain = name, %error, "is not there"));
        Some(Domain::read(name, &xml.ok()?).map_err(|error| error.to_string()))
    }

    fn domain_client<'d>(&self, domain: &'d Domain) -> Result<DomainClient<'d>, AskError> {
        let client = (self.connect)().map_err(|source| AskError::Client {
            domain: domain.name.clone(),
            source,
        })?;
        Ok(DomainClient::new(domain, client))
    }
}
