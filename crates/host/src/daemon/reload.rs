//! Reloads: another configuration comes into force.
//!
//! A thread prepares the configuration (`prepare`). The packet loop applies it between packets, a
//! few guests per turn ([`tailbound_switch::Reload`]). Steps that may fail come first and change
//! nothing. A thread also closes the old ports: for a TAP that takes milliseconds.
//!
//! Guests that are added or removed over the control socket are such a reload, too, but the
//! configuration's file is not read again. The new set of guests is stored right before it comes
//! into force: if the daemon dies in between, the next one continues as if it had answered.
//!
//! [`Reloads`] has the progress of a reload and decides its next step. It returns an [`Event`] for
//! each step that other parts of the daemon must do.

use super::changes::Changes;
use super::notify::notify;
use super::ports::{ClosingPorts, PortSet};
use super::prepare::{InForce, NextParts, PrepareResult, PreparedConfig, ReloadRequest};
use super::{HostError, system};
use crate::config::{ChangeError, Files};
use crate::inventory::Inventory;
use crate::retire::retire;
use crate::wake::Signals;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use tailbound_switch::{Reload, Switch};
use tailbound_units::Nanos;

/// Work of a turn on a reload, in units of an unchanged guest.
const WORK: usize = 32;

/// The state of a reload.
enum Progress {
    /// A thread prepares the configuration.
    Opening(Receiver<PrepareResult>),
    /// The switch checks and prepares the configuration.
    Trying(Candidate),
    /// A thread stores the added guests.
    Keeping(Receiver<Result<(), ChangeError>>, Candidate),
    /// The configuration is in force, except for the settings that guests get one by one.
    Settling(Box<Reload>, Rest),
    /// A thread closes the old ports: until then they cannot be opened anew.
    Closing(Receiver<()>, Changes),
}

/// A configuration that is not in force yet.
pub(super) struct Candidate {
    /// The parts of the daemon.
    pub(super) next: Box<NextParts>,
    /// The part of the switch.
    pub(super) reload: Box<Reload>,
}

/// Remaining work after a configuration came into force.
pub(super) struct Rest {
    pub(super) closing: ClosingPorts,
    /// True if the switch and other hosts must receive the guarantees again.
    pub(super) enforces: bool,
    pub(super) changes: Changes,
    /// The former state: another thread frees it, since that takes milliseconds.
    pub(super) spent: Box<dyn Send>,
}

/// A step of a reload that other parts of the daemon must do.
pub(super) enum Event {
    /// The switch has prepared the configuration: put it in force, then call [`Reloads::settle`].
    Ready(Candidate),
    /// All guests have their settings. Guarantees must be enforced again, or only be reported.
    InForce { enforces: bool },
    /// The reload is over.
    Ended(End),
}

/// The end of a reload.
pub(super) enum End {
    /// The configuration was in force already.
    Unchanged,
    /// The configuration is in force.
    Applied(Changes),
    /// The configuration was refused, and the one before stays.
    Refused(HostError),
}

/// The configuration in force, and the reload that replaces it.
pub(super) struct Reloads {
    /// The texts that the configuration in force was read from.
    files: Files,
    inventory: Arc<Inventory>,
    progress: Option<Progress>,
    /// The numbers of reloads.
    applied: u64,
    refused: u64,
}

impl Reloads {
    /// Makes the state of a daemon whose configuration is in force.
    pub(super) const fn new(files: Files, inventory: Arc<Inventory>) -> Self {
        Self {
            files,
            inventory,
            progress: None,
            applied: 0,
            refused: 0,
        }
    }

    /// Returns the texts of the configuration in force.
    pub(super) const fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the ports of the configuration in force.
    pub(super) const fn inventory(&self) -> &Arc<Inventory> {
        &self.inventory
    }

    /// Returns the number of applied reloads.
    pub(super) const fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the number of refused reloads.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if no reload is in progress.
    pub(super) const fn is_idle(&self) -> bool {
        self.progress.is_none()
    }

    /// Returns true if the reload has more work to do now.
    pub(super) const fn is_busy(&self) -> bool {
        matches!(
            self.progress,
            Some(Progress::Trying(..) | Progress::Settling(..))
        )
    }

    /// Begins a reload. Call it only if none is in progress.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub(super) fn begin(
        &mut self,
        wanted: ReloadRequest,
        in_force: InForce,
    ) -> Result<(), HostError> {
        assert!(self.is_idle(), "reloads follow each other");
        let prepared = in_force.start(wanted).map_err(system("start a thread"))?;
        self.progress = Some(Progress::Opening(prepared));
        Ok(())
    }

    /// Continues a reload, if there is one: a few guests per turn. A reload does not end while
    /// guarantees are still being enforced (`is_enforcing`).
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        switch: &mut Switch,
        ports: &mut PortSet,
        is_enforcing: bool,
        signals: &Signals,
    ) -> Option<Event> {
        let (progress, event) = match self.progress.take()? {
            Progress::Opening(prepared) => go_on_opening(prepared),
            Progress::Trying(candidate) => go_on_trying(candidate, switch, signals),
            Progress::Keeping(store_outcome, candidate) => {
                go_on_keeping(store_outcome, candidate, switch)
            }
            Progress::Settling(mut reload, mut rest) => {
                let is_settled = switch.settle(now, &mut reload, WORK);
                if ports.clear_up(&mut rest.closing, switch) && is_settled {
                    close(rest, *reload, signals)
                } else {
                    (Some(Progress::Settling(reload, rest)), None)
                }
            }
            Progress::Closing(closed, changes) if is_enforcing => {
                (Some(Progress::Closing(closed, changes)), None)
            }
            Progress::Closing(closed, changes) => match closed.try_recv() {
                Err(TryRecvError::Empty) => (Some(Progress::Closing(closed, changes)), None),
                Ok(()) | Err(TryRecvError::Disconnected) => {
                    (None, Some(Event::Ended(End::Applied(changes))))
                }
            },
        };
        self.progress = progress;
        event
    }

    /// Replaces the configuration in force. Returns the former one: its end takes time.
    pub(super) fn replace(
        &mut self,
        files: Files,
        inventory: Inventory,
    ) -> impl Send + 'static + use<> {
        (
            std::mem::replace(&mut self.files, files),
            std::mem::replace(&mut self.inventory, Arc::new(inventory)),
        )
    }

    /// Continues with the remaining work, after a candidate was put in force.
    pub(super) fn settle(&mut self, reload: Box<Reload>, rest: Rest) {
        assert!(self.is_idle(), "the candidate was its state");
        self.progress = Some(Progress::Settling(reload, rest));
    }

    /// Repeats the enforcement after the reload that is settling, if there is one: the guarantees
    /// that it has yet to bring into force were planned before.
    pub(super) fn enforce_again(&mut self) {
        if let Some(Progress::Settling(_, rest)) = &mut self.progress {
            rest.enforces = true;
        }
    }

    /// Counts and logs the end of a reload, with the number of ports and the user that requested it
    /// at the control socket; without one a signal did.
    pub(super) fn note_end(
        &mut self,
        result: Result<Changes, HostError>,
        ports: usize,
        uid: Option<u32>,
    ) {
        match result {
            Ok(changes) => {
                self.applied += 1;
                changes.log(ports, uid);
            }
            Err(error) => {
                self.refused += 1;
                if let Some(uid) = uid {
                    tracing::warn!(uid, %error, "a change was asked for and refused");
                } else {
                    tracing::error!(%error, "reload refused; the configuration in force stays");
                }
            }
        }
        notify("READY=1");
    }
}

/// The next state of a reload, and the step for other parts of the daemon.
type Step = (Option<Progress>, Option<Event>);

fn refuse(error: HostError) -> Step {
    (None, Some(Event::Ended(End::Refused(error))))
}

fn go_on_opening(receiver: Receiver<PrepareResult>) -> Step {
    match receiver.try_recv() {
        Err(TryRecvError::Empty) => (Some(Progress::Opening(receiver)), None),
        Err(TryRecvError::Disconnected) => {
            let ended = io::Error::other("its thread ended");
            refuse(system("prepare the configuration")(ended))
        }
        Ok(Err(error)) => refuse(error),
        Ok(Ok(None)) => (None, Some(Event::Ended(End::Unchanged))),
        Ok(Ok(Some(PreparedConfig { switch, next }))) => {
            let reload = Box::new(Switch::begin_reload(switch));
            (Some(Progress::Trying(Candidate { next, reload })), None)
        }
    }
}

fn go_on_trying(mut candidate: Candidate, switch: &mut Switch, signals: &Signals) -> Step {
    match switch.prepare(&mut candidate.reload, WORK) {
        Ok(false) => (Some(Progress::Trying(candidate)), None),
        Ok(true) if candidate.next.is_change => keep(candidate, switch, signals),
        Ok(true) => (None, Some(Event::Ready(candidate))),
        Err(rule) => {
            retire(candidate.next);
            refuse(rule.into())
        }
    }
}

fn go_on_keeping(
    store_outcome: Receiver<Result<(), ChangeError>>,
    candidate: Candidate,
    switch: &mut Switch,
) -> Step {
    match store_outcome.try_recv() {
        Err(TryRecvError::Empty) => (Some(Progress::Keeping(store_outcome, candidate)), None),
        Ok(Ok(())) => (None, Some(Event::Ready(candidate))),
        Ok(Err(error)) => cancel(candidate, switch, error.into()),
        Err(TryRecvError::Disconnected) => {
            let ended = io::Error::other("its thread ended");
            let error = system("write down who was added")(ended);
            cancel(candidate, switch, error)
        }
    }
}

/// Starts a thread that stores the added guests, before they come into force.
fn keep(candidate: Candidate, switch: &mut Switch, signals: &Signals) -> Step {
    let added = Arc::clone(candidate.next.files.added());
    let (done, store_outcome) = channel();
    let waker = signals.waker();
    let write = move || {
        // Nobody waits for it once the daemon ends.
        let _ = done.send(added.write());
        waker.wake();
    };
    let thread = std::thread::Builder::new().name("keep".to_owned());
    match thread.spawn(write) {
        Ok(_) => (Some(Progress::Keeping(store_outcome, candidate)), None),
        Err(error) => cancel(candidate, switch, system("start a thread")(error)),
    }
}

/// Gives up what the switch had prepared.
fn cancel(candidate: Candidate, switch: &mut Switch, error: HostError) -> Step {
    let Candidate { next, mut reload } = candidate;
    switch.cancel(&mut reload);
    retire((next, reload.into_spent()));
    refuse(error)
}

/// Ends a reload that was applied, except for closing the old ports.
fn close(rest: Rest, reload: Reload, signals: &Signals) -> Step {
    let Rest {
        closing,
        enforces,
        changes,
        spent,
    } = rest;
    let (done, closed) = channel();
    let waker = signals.waker();
    let spent = (closing.into_closed(), spent, reload.into_spent());
    let close = move || {
        drop(spent);
        // Nobody waits for it once the daemon ends.
        let _ = done.send(());
        waker.wake();
    };
    let thread = std::thread::Builder::new().name("retire".to_owned());
    if let Err(error) = thread.spawn(close) {
        tracing::error!(%error, "ports were closed within the packet loop");
    }
    (
        Some(Progress::Closing(closed, changes)),
        Some(Event::InForce { enforces }),
    )
}
