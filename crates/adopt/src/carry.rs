//! Takes the steps of an entry, all or none, and undoes them.
//!
//! Each entry is in the journal before its first step is taken. An undo removes only what bears
//! tailbound's mark, so a device that took the place of an adopted one is never changed, and an
//! undo can be repeated.

use super::journal::{Journal, JournalError};
use super::plan;
use super::step::{Action, Entry, Step};
use super::world::{Attached, DEFAULT_LENGTH, Host, HostError, PortState, World};

/// The result of an adoption.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adopted {
    /// The steps that were taken, each read back.
    pub changed: Vec<Step>,
    /// The number of steps whose result was there already.
    pub unchanged: usize,
    /// Deviations that were found while former steps were undone, in words.
    pub notes: Vec<String>,
}

/// The result of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// The steps that were undone.
    pub undone: Vec<Step>,
    /// The steps that stay, because other guests need them.
    pub shared: Vec<Step>,
    /// Deviations, in words.
    pub notes: Vec<String>,
    /// The steps that could not be undone, in words; the entry stays.
    pub failed: Vec<String>,
}

/// The boot and the network namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// The boot's identifier.
    pub boot: String,
    /// The network namespace's number.
    pub namespace: u64,
}

impl Here {
    pub(super) fn holds(&self, entry: &Entry) -> bool {
        entry.boot == self.boot && entry.namespace == self.namespace
    }
}

/// Reason why an adoption or a release failed.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// The journal cannot be used; nothing was changed since.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step failed.
    #[error("{step}: {source}{}", after(undone))]
    Step {
        /// The step, in words.
        step: String,
        /// The error.
        source: HostError,
        /// The steps that could not be undone, in words.
        undone: Vec<String>,
    },
    /// A guest was adopted in another network namespace.
    #[error(
        "{0} was adopted in another network namespace; run the command there (nsenter --net=FILE), \
         or use --state and --pins of its own"
    )]
    Elsewhere(String),
    /// A guest is not adopted.
    #[error("{0} is not adopted")]
    Unknown(String),
}

fn after(undone: &[String]) -> String {
    if undone.is_empty() {
        "; everything is as it was before".to_owned()
    } else {
        format!("; NOT undone: {}", undone.join("; "))
    }
}

/// Takes the steps of an entry that are not taken yet.
///
/// # Errors
/// A step failed, and all steps of this call were undone.
pub fn adopt(
    host: &mut dyn Host,
    journal: &mut dyn Journal,
    wanted: &Entry,
) -> Result<Adopted, CarryError> {
    let here = Here {
        boot: wanted.boot.clone(),
        namespace: wanted.namespace,
    };
    let all = journal.entries()?;
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.key == wanted.key);
    let own = own.into_iter().next();
    let mut known = own.iter().chain(&others);
    let is_elsewhere = |it: &&Entry| it.boot == here.boot && it.namespace != here.namespace;
    if let Some(elsewhere) = known.find(is_elsewhere) {
        return Err(CarryError::Elsewhere(elsewhere.name.clone()));
    }
    let former = own.filter(|own| here.holds(own));
    let others: Vec<_> = others.into_iter().filter(|it| here.holds(it)).collect();
    sweep(host, former.iter().chain(&others))?;
    let dropped = former.iter().flat_map(|former| &former.steps);
    let dropped = dropped.filter(|step| !wanted.shares(step));
    let mut union = wanted.clone();
    // The steps that are undone come first, so that they are undone last by a release.
    union.steps.splice(0..0, dropped.cloned());
    if former.as_ref() != Some(&union) {
        journal.write(&union)?;
    }
    let mut adopted = Adopted::default();
    for step in &wanted.steps {
        let known = taken(former.as_ref(), &others, step);
        match take(host, step, known) {
            Ok(true) => adopted.changed.push(step.clone()),
            Ok(false) => adopted.unchanged += 1,
            Err(source) => {
                let undone = revert(host, journal, wanted, former.as_ref(), &others);
                return Err(CarryError::Step {
                    step: step.to_string(),
                    source,
                    undone,
                });
            }
        }
    }
    let extra = union.steps.len() - wanted.steps.len();
    for step in &union.steps[..extra] {
        let is_shared = others.iter().any(|other| other.shares(step));
        if !is_shared && let Err(source) = undo(host, step, &mut adopted.notes) {
            // The entry stays as it is: a release undoes the step, too.
            return Err(CarryError::Step {
                step: step.to_string(),
                source,
                undone: vec![step.to_string()],
            });
        }
    }
    if extra > 0 {
        journal.write(wanted)?;
    }
    Ok(adopted)
}

/// Takes the steps of an entry, then releases what is left of the guest's former runs.
///
/// # Errors
/// As [`adopt`]; a former run cannot be released.
pub fn settle(
    world: &World,
    host: &mut dyn Host,
    journal: &mut dyn Journal,
    wanted: &Entry,
) -> Result<Adopted, CarryError> {
    let known = journal.entries()?;
    let mut adopted = adopt(host, journal, wanted)?;
    let here = Here {
        boot: world.boot.clone(),
        namespace: world.namespace,
    };
    for key in plan::superseded(world, &known, wanted) {
        release(host, journal, &here, &key)?;
        let note = format!("the entry of its former run, {key}, was released");
        adopted.notes.push(note);
    }
    Ok(adopted)
}

/// Forgets what is known of devices that are gone: a guest that was started again has their
/// addresses.
fn sweep<'e>(
    host: &mut dyn Host,
    entries: impl Iterator<Item = &'e Entry>,
) -> Result<(), CarryError> {
    for step in entries.flat_map(|entry| &entry.steps) {
        let swept = host.port(step.port.index).and_then(|port| {
            let is_there = port.is_some_and(|port| port.port.mac == step.port.mac);
            if is_there || matches!(step.action, Action::Uplink { .. }) {
                return Ok(());
            }
            host.detach(step.port.index)
        });
        swept.map_err(|source| CarryError::Step {
            step: step.to_string(),
            source,
            undone: Vec::new(),
        })?;
    }
    Ok(())
}

/// Returns the step that was taken for the same device.
fn taken<'e>(former: Option<&'e Entry>, others: &'e [Entry], step: &Step) -> Option<&'e Step> {
    let entries = former.into_iter().chain(others);
    let mut steps = entries.flat_map(|entry| &entry.steps);
    steps.find(|known| known.is_about_the_same(step))
}

/// Undoes what this adoption did after one of its steps failed; returns what could not be undone.
fn revert(
    host: &mut dyn Host,
    journal: &mut dyn Journal,
    wanted: &Entry,
    former: Option<&Entry>,
    others: &[Entry],
) -> Vec<String> {
    let mut failed = Vec::new();
    for step in wanted.steps.iter().rev() {
        let before = former.and_then(|former| {
            let mut steps = former.steps.iter();
            steps.find(|known| known.is_about_the_same(step))
        });
        let is_shared = others.iter().any(|other| other.shares(step));
        let result = match before {
            Some(before) => take(host, before, None).map(drop),
            None if is_shared => Ok(()),
            None => undo(host, step, &mut Vec::new()),
        };
        if let Err(error) = result {
            failed.push(format!("{step} ({error})"));
        }
    }
    if failed.is_empty() {
        let restored = match former {
            Some(former) => journal.write(former),
            None => journal.remove(&wanted.key),
        };
        if let Err(error) = restored {
            failed.push(error.to_string());
        }
        if former.is_none()
            && others.is_empty()
            && let Err(error) = host.finish()
        {
            failed.push(error.to_string());
        }
    }
    failed
}

/// Takes a step, and reads its result back. Returns false if `known`, the step that was taken for
/// the device, is the same and its result is there.
fn take(host: &mut dyn Host, step: &Step, known: Option<&Step>) -> Result<bool, HostError> {
    let index = step.port.index;
    let gone = || HostError::new("the interface is gone", "it was removed meanwhile");
    let port = host.port(index)?.ok_or_else(gone)?;
    if port.port.mac != step.port.mac {
        return Err(HostError::new(
            "another interface has its number",
            "it was replaced meanwhile",
        ));
    }
    if known.is_some_and(|known| known.action == step.action) && has(&port, step) {
        return Ok(false);
    }
    if known.is_some_and(|known| known.port.mac != step.port.mac) {
        // The rules of the former device with this number.
        host.detach(index)?;
    }
    match &step.action {
        Action::Uplink { mark, queue } => host.attach_uplink(index, *mark, *queue)?,
        Action::Guest { rules } => host.attach_guest(index, rules)?,
    }
    let port = host.port(index)?.ok_or_else(gone)?;
    if has(&port, step) {
        return Ok(true);
    }
    Err(HostError::new(
        "the kernel accepted it, but it is not there afterwards",
        format!(
            "programs {}, queueing discipline {}",
            if port.attached.is_some() {
                "attached"
            } else {
                "missing"
            },
            port.qdisc
        ),
    ))
}

/// Returns the parts of an adoption that are not in force, in words.
///
/// # Errors
/// The kernel cannot be queried.
pub fn missing(host: &mut dyn Host, here: &Here, entry: &Entry) -> Result<Vec<String>, HostError> {
    if !here.holds(entry) {
        return Ok(vec![
            "it was adopted in another boot or network namespace".to_owned(),
        ]);
    }
    let mut missing = Vec::new();
    for step in &entry.steps {
        let name = &step.port.name;
        let Some(port) = host.port(step.port.index)? else {
            missing.push(format!("{name} is gone"));
            continue;
        };
        if port.port.mac != step.port.mac {
            missing.push(format!("another interface has the number of {name}"));
        } else if port.attached.is_none() {
            missing.push(format!("{name} has no programs of tailbound"));
        } else if !has(&port, step) {
            let wanted = step.action.queue().name();
            missing.push(format!("{name} has {} instead of {wanted}", port.qdisc));
        }
    }
    Ok(missing)
}

/// Returns true if the result of a step is there.
fn has(port: &PortState, step: &Step) -> bool {
    let role = match step.action {
        Action::Uplink { .. } => Attached::Uplink,
        Action::Guest { .. } => Attached::Guest,
    };
    port.attached == Some(role) && (port.is_queue_ours() || !step.action.needs_fq())
}

/// Undoes a step; it may not have been taken.
fn undo(host: &mut dyn Host, step: &Step, notes: &mut Vec<String>) -> Result<(), HostError> {
    let index = step.port.index;
    let name = &step.port.name;
    // Also of a device that is gone: something may be known of it.
    host.detach(index)?;
    let Some(port) = host.port(index)? else {
        notes.push(format!("{name} is gone, and its programs with it"));
        return Ok(());
    };
    if port.is_queue_ours() {
        host.remove_queue(index)?;
    }
    if port.port.mac != step.port.mac {
        notes.push(format!(
            "{} has the number of {name} and another MAC address; it stays as it is",
            port.port.name
        ));
        return Ok(());
    }
    if step.before.is_unqueued && port.queue_length == DEFAULT_LENGTH {
        host.set_queue_length(&port.port, 0)?;
    }
    if port.clsact && !step.before.clsact && port.classifiers.is_empty() {
        host.remove_clsact(index)?;
    }
    let Some(port) = host.port(index)? else {
        return Ok(());
    };
    if port.attached.is_some() || port.is_queue_ours() {
        return Err(HostError::new(
            format!("{name} cannot be restored"),
            "programs or queue are still there",
        ));
    }
    if port.qdisc != step.before.qdisc {
        notes.push(format!(
            "{name} had the queueing discipline {}; it has {} now",
            step.before.qdisc, port.qdisc
        ));
    }
    if port.clsact && !step.before.clsact {
        notes.push(format!(
            "{name} keeps its clsact, which another program uses now"
        ));
    }
    Ok(())
}

/// Undoes the steps of a guest that no other guest needs, and forgets the guest.
///
/// # Errors
/// The guest is unknown or was adopted elsewhere, or the journal cannot be used. Steps that cannot
/// be undone are no error; see [`Released::failed`].
pub fn release(
    host: &mut dyn Host,
    journal: &mut dyn Journal,
    here: &Here,
    key: &str,
) -> Result<Released, CarryError> {
    let all = journal.entries()?;
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.key == key);
    let own = own.into_iter().next();
    let own = own.ok_or_else(|| CarryError::Unknown(key.to_owned()))?;
    let mut released = Released::default();
    if own.boot != here.boot {
        released.notes.push(
            "the host was booted since, so nothing was left in the kernel to be undone".to_owned(),
        );
        journal.remove(key)?;
        return Ok(released);
    }
    if own.namespace != here.namespace {
        return Err(CarryError::Elsewhere(own.name));
    }
    let others: Vec<_> = others.into_iter().filter(|it| here.holds(it)).collect();
    for step in own.steps.iter().rev() {
        if others.iter().any(|other| other.shares(step)) {
            released.shared.push(step.clone());
            continue;
        }
        match undo(host, step, &mut released.notes) {
            Ok(()) => released.undone.push(step.clone()),
            Err(error) => released.failed.push(format!("{step}: {error}")),
        }
    }
    if released.failed.is_empty() {
        if others.is_empty()
            && let Err(error) = host.finish()
        {
            released.failed.push(error.to_string());
            return Ok(released);
        }
        journal.remove(key)?;
    }
    Ok(released)
}

#[cfg(test)]
mod tests;
