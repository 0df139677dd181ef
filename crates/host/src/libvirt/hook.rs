//! What libvirt's hook for QEMU is called for (<https://libvirt.org/hooks.html>).
//!
//! A hook runs while libvirt holds the domain, so nothing here asks libvirt: that would wait
//! for the hook.

use super::ask::{AskError, Asking};
use super::domain::{Domain, DomainError};
use crate::socket::{Client, ClientError};
use std::time::{Duration, Instant};

/// How long a daemon may be away: one that died is started again within that.
const AWAY: Duration = Duration::from_secs(5);

/// How soon it is looked for again.
const AGAIN: Duration = Duration::from_millis(50);

/// Why a hook did not do what it was called for.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// What it was handed is wrong.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// It was called for one domain with another one's XML.
    #[error("called for domain {called} with the XML of {domain}; hand over that of {called}")]
    Other {
        /// For whom it was called.
        called: String,
        /// Whose XML it was handed.
        domain: String,
    },
    /// The daemon is away, or refuses.
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl HookError {
    /// Whether nobody could be asked.
    pub fn is_unasked(&self) -> bool {
        matches!(self, Self::Ask(AskError::Client { .. }))
    }
}

/// What is to be done about a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// QEMU is started next; libvirt has said by then as which user.
    Start,
    /// libvirt was started again, and found the domain running. It kills a domain whose hook
    /// fails.
    Reconnect,
    /// QEMU has ended.
    Stopped,
}

impl Operation {
    /// `None` for what concerns nobody here.
    fn of(name: &str) -> Option<Self> {
        match name {
            "start" => Some(Self::Start),
            "reconnect" => Some(Self::Reconnect),
            "stopped" => Some(Self::Stopped),
            _ => None,
        }
    }
}

/// Does what the hook is called for: `operation` of the domain `called`, whose XML is `xml`.
/// Returns what is to be said though it has not failed.
///
/// `connect` connects to the daemon; nobody does where the domain is of no concern to it.
///
/// # Errors
/// Of `start`, whatever keeps the domain's guests from being there with their guarantees:
/// libvirt does not start the domain then. Of `stopped` the same, and libvirt goes on. Of all
/// others none.
pub fn hook(
    operation: &str,
    called: &str,
    xml: &str,
    connect: &dyn Fn() -> Result<Client, ClientError>,
) -> Result<Vec<String>, HookError> {
    let Some(operation) = Operation::of(operation) else {
        return Ok(Vec::new());
    };
    let done = act(operation, called, xml, connect);
    match done {
        Err(error) if operation == Operation::Reconnect => {
            Ok(vec![format!("{error}; the domain goes on as it is")])
        }
        done => done,
    }
}

fn act(
    operation: Operation,
    called: &str,
    xml: &str,
    connect: &dyn Fn() -> Result<Client, ClientError>,
) -> Result<Vec<String>, HookError> {
    let domain = Domain::read(called, xml)?;
    if domain.name != called {
        return Err(HookError::Other {
            called: called.to_owned(),
            domain: domain.name,
        });
    }
    let has_guests = domain.guests().next().is_some();
    // Metadata may have been taken away while it ran.
    let is_of_concern = has_guests || operation == Operation::Stopped && !domain.cards.is_empty();
    if !is_of_concern {
        return Ok(Vec::new());
    }
    let client = match patiently(connect) {
        Ok(client) => client,
        Err(_) if !has_guests => return Ok(Vec::new()),
        Err(source) => {
            let domain = domain.name;
            return Err(AskError::Client { domain, source }.into());
        }
    };
    let mut asking = Asking::new(&domain, client);
    match operation {
        Operation::Stopped => {
            asking.remove()?;
            Ok(Vec::new())
        }
        Operation::Reconnect => {
            let unguaranteed = asking.add()?;
            Ok(unguaranteed.iter().map(|guest| no_room(guest)).collect())
        }
        Operation::Start => {
            let unguaranteed = asking.add()?;
            let Some(guest) = unguaranteed.first() else {
                return Ok(Vec::new());
            };
            // What is not kept is not promised: it is not started.
            asking.remove()?;
            Err(asking.refused(no_room(guest)).into())
        }
    }
}

/// What is said of a guest that is not held to its guarantee.
pub(super) fn no_room(guest: &str) -> String {
    format!(
        "there is no room on the uplink for what guest {guest} is guaranteed, since others have \
         it; `tailbound host show` has what they are held to"
    )
}

/// A connection to a daemon, also where that is just being started again.
fn patiently(connect: &dyn Fn() -> Result<Client, ClientError>) -> Result<Client, ClientError> {
    let until = Instant::now() + AWAY;
    loop {
        match connect() {
            Err(ClientError::Nobody { .. }) if Instant::now() < until => {
                std::thread::sleep(AGAIN);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests;
