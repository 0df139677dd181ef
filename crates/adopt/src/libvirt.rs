//! Domains of libvirt on a bridge, a network or Open vSwitch: the hook for QEMU adopts a domain that
//! starts, with the protection of its metadata, and releases it when it has stopped.
//!
//! The metadata are an element `<guarantee>` of tailbound's namespace ([`NAMESPACE`]), or the extra
//! specs of the flavor that `OpenStack`'s nova writes there. libvirt has made the domain's TAP when it
//! calls the hook `start`, and QEMU does not run yet. A hook must not query libvirt, which waits for it.

mod domain;

pub use domain::{DomainError, NAMESPACE, Server, server};

use super::carry::{self, CarryError};
use super::journal::{FileJournal, Journal as _, JournalError};
use super::live::{Live, end};
use super::plan;
use super::refusal::Refusal;
use super::request::Selection;
use super::step::Origin;
use super::world::HostError;
use domain::Domain;
use std::path::Path;
use std::time::Duration;

/// The longest wait for another process that has the journal.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Reason why a domain does not get the protection of its metadata.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The domain's XML has a mistake.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The domain cannot be adopted here.
    #[error("domain {domain}: {reason}")]
    Refused {
        /// The domain's name.
        domain: String,
        /// The reason, and a remedy.
        reason: String,
    },
}

impl HookError {
    fn refused(domain: &Domain, reason: &impl ToString) -> Self {
        Self::Refused {
            domain: domain.name.clone(),
            reason: reason.to_string(),
        }
    }
}

/// Runs the hook for `operation` of the domain `called`, whose XML is `xml`. Returns warnings. The
/// journal is in `state`, and programs are pinned below `pins`.
///
/// # Errors
/// For `start`, any reason why the domain does not get the protection of its metadata: libvirt then
/// does not start it. For `stopped` the same, and libvirt continues. Other operations have no errors.
pub fn hook(
    operation: &str,
    called: &str,
    xml: &str,
    state: &Path,
    pins: &Path,
) -> Result<Vec<String>, HookError> {
    match operation {
        "start" => protect(called, xml, state, pins),
        // libvirt kills a domain whose hook fails after a restart of libvirt.
        "reconnect" => Ok(protect(called, xml, state, pins)
            .unwrap_or_else(|error| vec![format!("{error}; the domain goes on as it is")])),
        "stopped" => forget(called, xml, state, pins),
        _ => Ok(Vec::new()),
    }
}

fn protect(called: &str, xml: &str, state: &Path, pins: &Path) -> Result<Vec<String>, HookError> {
    let domain = Domain::read(called, xml)?;
    let Some(wish) = &domain.wish else {
        return Ok(Vec::new());
    };
    let refused = |refusal: Refusal| HookError::refused(&domain, &refusal);
    let end = end::of_machine(&wish.interface, wish.mac, wish.request.ips.clone());
    let end = end.map_err(|error| HookError::refused(&domain, &error))?;
    let guest = end.guest(domain.key(), domain.name.clone(), "domain");
    let mut journal = FileJournal::open_within(state, MAX_WAIT)?;
    let mut live = Live::new(pins);
    let selection = Selection::Patterns(vec![guest.key.clone()]);
    let world = live.world_of(&wish.request, guest)?;
    let planned = plan::plan(&world, &selection, &wish.request, &journal.entries()?);
    let planned = planned.map_err(refused)?.into_iter().next();
    let planned = planned.expect("the only guest has the key");
    let mut entry = planned.entry.map_err(refused)?;
    entry.origin = Origin::Libvirt;
    let ready = live.make_ready(&wish.request);
    ready.map_err(|error| HookError::refused(&domain, &error))?;
    let settled = carry::settle(&world, &mut live, &mut journal, &entry);
    settled.map_err(|error| HookError::refused(&domain, &error))?;
    Ok(Vec::new())
}

/// Releases a domain. One that was never adopted is no error.
fn forget(called: &str, xml: &str, state: &Path, pins: &Path) -> Result<Vec<String>, HookError> {
    // Its metadata may have been changed into a mistake while it ran.
    let domain = Domain::identify(called, xml)?;
    let is_adopted = |journal: &FileJournal| {
        let entries = journal.entries()?;
        let mut own = entries
            .iter()
            .filter(|entry| entry.origin == Origin::Libvirt);
        Ok::<_, JournalError>(own.any(|entry| entry.key == domain.key()))
    };
    if !is_adopted(&FileJournal::preview(state))? {
        return Ok(Vec::new());
    }
    let mut journal = FileJournal::open_within(state, MAX_WAIT)?;
    let released = carry::release(
        &mut Live::new(pins),
        &mut journal,
        &Live::here()?,
        &domain.key(),
    );
    match released {
        Ok(released) if released.failed.is_empty() => Ok(Vec::new()),
        Ok(released) => Err(HookError::refused(&domain, &released.failed.join("; "))),
        Err(CarryError::Unknown(_)) => Ok(Vec::new()),
        Err(error) => Err(HookError::refused(&domain, &error)),
    }
}
