//! Two guests, each a network namespace, between which backends are measured in turn.

use crate::LabError;
use crate::build::batch;
use crate::guest::{self, Outcome, Task, Work, now};
use crate::processes::{POLL, Ready, Start, Supervisor};
use crate::topology::namespace_path;
use crate::turns::Place;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tailbound_sys::sched::Policy;
use tailbound_units::Nanos;

/// The port on which guests listen.
pub(crate) const PORT: u16 = 7_000;
/// The time from the start signal until tasks begin.
const LEAD: Nanos = Nanos::from_millis(200);
/// The `ip` commands that make a bridge of `port1` and `port2` in their namespace.
pub(crate) const BRIDGE: &str = "\
    link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
    link set port1 master bridge up\n\
    link set port2 master bridge up\n\
    link set bridge up\n";

/// The settings of tasks in both guests.
pub(crate) struct GuestPair<'a> {
    pub(crate) place: &'a Place,
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
    /// The scheduling class of programs in guests.
    pub(crate) policy: Option<Policy>,
}

impl<'a> GuestPair<'a> {
    pub(crate) fn supervisor(&self) -> Supervisor<'a> {
        Supervisor::new(&self.place.run_dir, Arc::clone(&self.place.signal))
    }

    /// Starts a task in a guest. Returns the file of its outcome.
    pub(crate) fn start_task(
        &self,
        supervisor: &mut Supervisor<'_>,
        number: u8,
        (work, ends): (Work, bool),
        grace: Nanos,
    ) -> Result<PathBuf, LabError> {
        let file = |extension: &str| -> PathBuf {
            let name = format!("guest{number}.{extension}");
            self.place.run_dir.path().join(name)
        };
        let (path, outcome) = (file("task.json"), file("outcome.json"));
        // Of the measurement before.
        let _ = std::fs::remove_file(&outcome);
        let task = Task {
            work,
            warmup: self.warmup,
            duration: self.duration,
            grace,
            outcome: outcome.clone(),
        };
        task.write(&path)?;
        supervisor.start(Start {
            name: format!("guest {number}"),
            program: self.place.program.clone(),
            args: guest::command(&path),
            netns: &namespace_path(&guest_name(number)),
            cpus: self.place.cpus.all,
            policy: self.policy,
            ready: Ready::Stdout(guest::READY),
            ends,
        })?;
        Ok(outcome)
    }

    /// Starts the measurement of the children from `first` on, and waits for its time and `grace`.
    pub(crate) fn rest(
        &self,
        supervisor: &mut Supervisor<'_>,
        first: usize,
        grace: Nanos,
    ) -> Result<(), LabError> {
        supervisor.wait_ready(first)?;
        let start = now().saturating_add(LEAD);
        supervisor.start_at(&format!("{}\n", start.as_nanos()))?;
        supervisor.rest((LEAD + self.warmup + self.duration + grace).into())
    }
}

/// Waits for the outcome of a task.
pub(crate) fn outcome(supervisor: &mut Supervisor<'_>, path: &Path) -> Result<Outcome, LabError> {
    while !path.exists() {
        supervisor.rest(POLL)?;
    }
    Outcome::read(path)
}

pub(crate) fn guest_name(number: u8) -> String {
    format!("guest{number}")
}

pub(crate) const fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, number)
}

pub(crate) fn mac(number: u8) -> String {
    format!("02:00:00:01:00:{number:02x}")
}

/// Configures the interface of a guest.
pub(crate) fn configure(number: u8) -> Result<(), LabError> {
    let commands = format!(
        "link set lo up\n\
         link set eth0 address {} up\n\
         address add {}/24 dev eth0\n",
        mac(number),
        address(number)
    );
    batch("ip", Some(&guest_name(number)), &commands)
}
