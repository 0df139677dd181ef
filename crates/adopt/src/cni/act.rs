//! The commands of a runtime.

use super::super::carry::{self, CarryError};
use super::super::journal::{FileJournal, Journal as _};
use super::super::lateness;
use super::super::live::{Live, end};
use super::super::plan;
use super::super::request::Selection;
use super::super::step::{Attachment, Entry, Origin};
use super::super::world::HostError;
use super::call::{Environment, Target, missing};
use super::claim;
use super::config::{self, Config, VERSIONS};
use super::error::{CniError, Code};
use serde_json::{Value, json};
use std::time::Duration;
use tailbound_units::Nanos;

/// The longest wait for another plugin that has the journal: a runtime starts many containers at
/// the same time.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The version in an answer to a document without one.
const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];

/// Carries out the call of a runtime, with the network configuration `input`. Returns the text for
/// standard output; it is the document of an error if the second value is false.
pub fn run(environment: &Environment, input: &str) -> (String, bool) {
    let (keys, version) = match config::document(input) {
        Ok(document) => document,
        Err(error) => return (error.document(NEWEST), false),
    };
    if environment.command == "VERSION" {
        let answer = json!({ "cniVersion": version, "supportedVersions": VERSIONS });
        return (format!("{answer:#}\n"), true);
    }
    let called =
        Config::read(keys, &version).and_then(|config| match environment.command.as_str() {
            "ADD" => add(&config, &environment.target()?),
            "DEL" => delete(&config, &environment.target()?).map(|()| String::new()),
            "CHECK" => check(&config, &environment.target()?).map(|()| String::new()),
            "GC" => collect(&config).map(|()| String::new()),
            "STATUS" => status(&config).map(|()| String::new()),
            other => {
                let known = "ADD, DEL, CHECK, GC, STATUS, VERSION";
                let details = format!("CNI_COMMAND is {other:?}; known: {known}");
                Err(CniError::new(
                    Code::Environment,
                    "invalid environment variables",
                    details,
                ))
            }
        });
    match called {
        Ok(text) => (text, true),
        Err(error) => (error.document(&version), false),
    }
}

impl From<HostError> for CniError {
    fn from(error: HostError) -> Self {
        Self::new(Code::Failed, "the host cannot be read", error)
    }
}

impl From<CarryError> for CniError {
    fn from(error: CarryError) -> Self {
        match error {
            CarryError::Journal(error) => error.into(),
            other => Self::new(Code::Failed, "the container cannot be adopted", other),
        }
    }
}

impl Target {
    fn attachment(&self, config: &Config) -> Attachment {
        Attachment {
            network: config.network.clone(),
            container: self.container.clone(),
            interface: self.interface.clone(),
        }
    }
}

/// Adopts a container; returns the result of the plugin before.
fn add(config: &Config, target: &Target) -> Result<String, CniError> {
    let result = Value::Object(config.result()?.clone());
    let request = config.request_of(target, claim::guarantee(&config.claims, target)?)?;
    let netns = target.netns.as_ref().ok_or_else(|| missing("CNI_NETNS"))?;
    let refused = |why: &dyn std::fmt::Display| {
        CniError::new(Code::Refused, "the container cannot be adopted", why)
    };
    let ips = config.addresses(&target.interface);
    let end = end::of_container(netns, &target.interface, &ips);
    let end = end.map_err(|error| refused(&error))?;
    let guest = end.guest(target.key(), target.name(), target.kind());
    let mut journal = FileJournal::open_within(&config.state, MAX_WAIT)?;
    let mut live = Live::new(&config.pins);
    let selection = Selection::Patterns(vec![guest.key.clone()]);
    let world = live.world_of(&request, guest)?;
    let planned = plan::plan(&world, &selection, &request, &journal.entries()?);
    let planned = planned
        .map_err(|refusal| refused(&refusal))?
        .into_iter()
        .next();
    let planned = planned.expect("the only guest has the key");
    let mut entry = planned.entry.map_err(|refusal| refused(&refusal))?;
    entry.origin = Origin::Cni(target.attachment(config));
    live.make_ready(&request).map_err(|why| refused(&why))?;
    carry::settle(&world, &mut live, &mut journal, &entry)?;
    Ok(format!("{result:#}\n"))
}

/// Returns the entries of a network's connections.
fn attached<'e>(
    entries: &'e [Entry],
    network: &'e str,
) -> impl Iterator<Item = (&'e Attachment, &'e Entry)> {
    entries.iter().filter_map(move |entry| match &entry.origin {
        Origin::Cni(attachment) if attachment.network == network => Some((attachment, entry)),
        _ => None,
    })
}

/// Releases a container. One that was never adopted is no error.
fn delete(config: &Config, target: &Target) -> Result<(), CniError> {
    let own = target.attachment(config);
    release(config, |attachment| *attachment == own)
}

/// Releases the containers of the network that have gone.
fn collect(config: &Config) -> Result<(), CniError> {
    let valid = config.valid()?;
    release(config, |attachment| {
        let is_it = |(container, interface): &(String, String)| {
            *container == attachment.container && *interface == attachment.interface
        };
        !valid.iter().any(is_it)
    })
}

/// Releases the connections of the network for which `is_meant` is true.
fn release(config: &Config, is_meant: impl Fn(&Attachment) -> bool) -> Result<(), CniError> {
    let keys = |journal: &FileJournal| {
        let entries = journal.entries()?;
        let meant = attached(&entries, &config.network).filter(|(it, _)| is_meant(it));
        Ok::<_, CniError>(
            meant
                .map(|(_, entry)| entry.key.clone())
                .collect::<Vec<_>>(),
        )
    };
    // Most often there is nothing to be done, and no need to wait for others.
    if keys(&FileJournal::preview(&config.state))?.is_empty() {
        return Ok(());
    }
    let mut journal = FileJournal::open_within(&config.state, MAX_WAIT)?;
    let here = Live::here()?;
    let mut live = Live::new(&config.pins);
    let mut failed = Vec::new();
    for key in keys(&journal)? {
        match carry::release(&mut live, &mut journal, &here, &key) {
            Ok(released) => failed.extend(released.failed),
            Err(error) => failed.push(error.to_string()),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let message = "a container is not released";
    Err(CniError::new(Code::Failed, message, failed.join("; ")))
}

/// Compares a container's protection with its entry.
fn check(config: &Config, target: &Target) -> Result<(), CniError> {
    config.result()?;
    let own = target.attachment(config);
    let entries = FileJournal::preview(&config.state).entries()?;
    let mut all = attached(&entries, &config.network);
    let entry = all.find(|(attachment, _)| **attachment == own);
    let changed = |details: String| {
        let message = "the container's protection is not as it was";
        CniError::new(Code::Changed, message, details)
    };
    let (_, entry) = entry.ok_or_else(|| changed(format!("{} is not adopted", target.name())))?;
    let mut live = Live::new(&config.pins);
    let mut missing = carry::missing(&mut live, &Live::here()?, entry)?;
    if missing.is_empty() && entry.request.guarantee.is_some() {
        missing.extend(late(&mut live, entry.request.allowance.lateness)?);
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(changed(missing.join("; ")))
}

/// Returns the reason why a guarantee that counts with the lateness `counted` is not kept here. The first
/// guarantee warms a host up: nothing is late before.
fn late(live: &mut Live, counted: Option<Nanos>) -> Result<Option<String>, CniError> {
    if counted.is_none() {
        return Ok(None);
    }
    let warm = live.lateness()?;
    let warm = warm.filter(|lateness| lateness::bound(lateness).is_some());
    let late = warm.and_then(|warm| lateness::check(Some(&warm), counted).err());
    Ok(late.map(|why| why.to_string()))
}

/// Reports an error if the next container could not be adopted.
fn status(config: &Config) -> Result<(), CniError> {
    let mut live = Live::new(&config.pins);
    let lack = match live.lack(config.limits()?) {
        None => late(&mut live, config.request()?.allowance.lateness)?,
        lack => lack,
    };
    let Some(lack) = lack else { return Ok(()) };
    let entries = FileJournal::preview(&config.state).entries()?;
    let here = Live::here()?;
    let mut own = attached(&entries, &config.network);
    let code = if own.any(|(_, entry)| here.holds(entry)) {
        Code::NotReadyAnyMore
    } else {
        Code::NotReady
    };
    let message = "containers cannot be protected on this host";
    Err(CniError::new(code, message, lack))
}
