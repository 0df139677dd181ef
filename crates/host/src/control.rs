//! The guarantees of this host's machines: watched at the placement service, and kept as the last
//! known configuration while it is away and across restarts.
//!
//! `watch` follows the stream on a thread of its own, `staleness` decides what becomes of older
//! revisions, `state` keeps the last known configuration in a file. The packet loop receives each
//! accepted revision through a channel.

mod staleness;
mod state;
mod watch;

pub use state::StateError;
pub(crate) use watch::{WatchClient, WatchStatus};

use std::collections::HashSet;
use std::path::PathBuf;
use tailbound_api::{HostGuarantees, VmName};
use tailbound_client::{Settings, SettingsError};

/// The default path of the state file.
pub const DEFAULT_STATE: &str = "/var/lib/tailbound/guarantees.json";

/// The placement service that this host follows.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// How the service is reached.
    pub service: Settings,
    /// This host's name in the service's topology.
    pub host: String,
    /// The file that keeps the last known configuration.
    pub state: PathBuf,
}

/// Why the placement service cannot be watched, whether it answers or not.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address, the token or the CA cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The last known configuration cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system has no thread for it.
    #[error("cannot start the thread that follows the placement service: {0}")]
    Thread(std::io::Error),
}

/// Checks that guarantees are about `host` and name each machine once. Returns what is wrong.
fn check(guarantees: &HostGuarantees, host: &str) -> Result<(), String> {
    if guarantees.host != host {
        return Err(format!("it is about {:?}, not {host:?}", guarantees.host));
    }
    let mut names = HashSet::new();
    for vm in &guarantees.vms {
        vm.vm.parse::<VmName>().map_err(|error| error.to_string())?;
        if !names.insert(&vm.vm) {
            return Err(format!("the machine {} is there twice", vm.vm));
        }
    }
    Ok(())
}
