//! Connection to the placement service: the guarantees of this host's VMs, and the keys that sign
//! its messages to other hosts. Both stay in use while the service is unreachable, and across
//! restarts.
//!
//! `watch` follows the stream of guarantees on its own thread, and `staleness` decides about older
//! revisions. `report` reports the host's capacity and measurements on another thread, and `keys`
//! requests keys on a third. `state` stores the last answers in a file. The packet loop receives
//! news through channels.

mod indexed;
mod keys;
mod report;
mod staleness;
mod state;
mod watch;

pub(crate) use indexed::IndexedGuarantees;
pub(crate) use keys::{KeyClient, KeyInbox, KeyStatus, Keys};
pub(crate) use report::{
    AskCpu, AskMeasured, ReportClient, ReportMeasurements, ReservationGap, limits,
};
pub use state::StateError;
pub(crate) use watch::{WatchClient, WatchStatus};

use state::StoredAnswer;
use std::collections::HashSet;
use std::path::PathBuf;
use tailbound_api::client::{Settings, SettingsError};
use tailbound_api::{HostGuarantees, VmName};

/// The default path of the state file.
pub const DEFAULT_STATE: &str = "/var/lib/tailbound/guarantees.json";

/// The placement service that this host follows.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The settings of the client: addresses, token and CA.
    pub service: Settings,
    /// This host's name in the service's topology.
    pub host: String,
    /// The file that keeps the last known configuration.
    pub state: PathBuf,
}

/// Reason why the placement service cannot be watched, whether it answers or not.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address, the token or the CA cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The last known configuration cannot be stored.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system refused to start the thread.
    #[error("cannot start the thread that follows the placement service: {0}")]
    Thread(std::io::Error),
}

impl StoredAnswer for HostGuarantees {
    /// Checks that the guarantees are for `host` and name each VM once.
    fn check(&self, host: &str) -> Result<(), String> {
        is_about(&self.host, host)?;
        let mut names = HashSet::new();
        for vm in &self.vms {
            vm.vm.parse::<VmName>().map_err(|error| error.to_string())?;
            if !names.insert(&vm.vm) {
                return Err(format!("the machine {} is there twice", vm.vm));
            }
        }
        Ok(())
    }
}

fn is_about(subject: &str, host: &str) -> Result<(), String> {
    let same = subject == host;
    same.then_some(())
        .ok_or_else(|| format!("it is about {subject:?}, not {host:?}"))
}
