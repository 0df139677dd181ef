//! Implementation of libvirt's hook for QEMU (<https://libvirt.org/hooks.html>).
//!
//! A hook runs while libvirt has the domain locked. So nothing here sends a request to libvirt: the
//! answer would wait for the hook.

use super::ask::{AskError, DomainClient};
use super::domain::{Domain, DomainError};
use crate::socket::{Client, ClientError};
use std::time::{Duration, Instant};

/// The longest absence of a daemon: one that died is started again within that time.
const AWAY: Duration = Duration::from_secs(5);

/// Interval of the attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Reason why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The domain's XML has a mistake.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The hook was called for one domain with another one's XML.
    #[error("called for domain {called} with the XML of {domain}; hand over that of {called}")]
    Other {
        /// The name in the call.
        called: String,
        /// The name in the XML.
        domain: String,
    },
    /// The daemon does not answer, or refuses.
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl HookError {
    /// Returns true if the daemon could not be reached.
    pub fn is_unasked(&self) -> bool {
        matches!(self, Self::Ask(AskError::Client { .. }))
    }
}

/// An operation of the hook on a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// QEMU is started next; libvirt has chosen its user by then.
    Start,
    /// libvirt was restarted and found the domain running. It kills a domain whose hook fails.
    Reconnect,
    /// QEMU has ended.
    Stopped,
}

impl Operation {
    /// Returns the operation; `None` for one without an effect on guests.
    fn of(name: &str) -> Option<Self> {
        match name {
            "start" => Some(Self::Start),
            "reconnect" => Some(Self::Reconnect),
            "stopped" => Some(Self::Stopped),
            _ => None,
        }
    }
}

/// Runs the hook for `operation` of the domain `called`, whose XML is `xml`. Returns warnings.
///
/// `connect` connects to the daemon; it is not called for a domain without guests of the daemon.
///
/// # Errors
/// For `start`, any reason why the domain's guests do not get their guarantees: libvirt then does
/// not start the domain. For `stopped` the same, and libvirt continues. Other operations have no
/// errors.
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
    let mut client = DomainClient::new(&domain, client);
    match operation {
        Operation::Stopped => {
            client.remove()?;
            Ok(Vec::new())
        }
        Operation::Reconnect => {
            let unguaranteed = client.add()?;
            Ok(unguaranteed.iter().map(|guest| no_room(guest)).collect())
        }
        Operation::Start => {
            let unguaranteed = client.add()?;
            let Some(guest) = unguaranteed.first() else {
                return Ok(Vec::new());
            };
            // What is not kept is not promised: it is not started.
            client.remove()?;
            Err(client.refused(no_room(guest)).into())
        }
    }
}

/// Returns the warning about a guest whose guarantee is not in force.
pub(super) fn no_room(guest: &str) -> String {
    format!(
        "there is no room on the uplink for what guest {guest} is guaranteed, since others have \
         it; `tailbound host show` has what they are held to"
    )
}

/// Connects to a daemon, also while it is being restarted.
fn patiently(connect: &dyn Fn() -> Result<Client, ClientError>) -> Result<Client, ClientError> {
    let until = Instant::now() + AWAY;
    loop {
        match connect() {
            Err(ClientError::Nobody { .. }) if Instant::now() < until => {
                std::thread::sleep(CONNECT_INTERVAL);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests;
