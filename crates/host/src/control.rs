//! What the placement service says of this host: the guarantees of its machines, and the keys that
//! it signs with what it says to other hosts. Both are kept while the service is away and across
//! restarts.
//!
//! `watch` follows the stream of guarantees on a thread of its own, `staleness` decides what becomes
//! of older revisions; `report` says what this host keeps on another, and what it measured; `keys`
//! asks for keys on a thread of its own; `state` keeps what was said last in a file. The packet loop receives what is new through channels.

mod keys;
mod report;
mod said;
mod staleness;
mod state;
mod watch;

pub(crate) use keys::{KeyClient, KeyStatus, Keys};
pub(crate) use report::{AskCpu, AskMeasured, Asked, ReportClient, Reserved, limits};
pub(crate) use said::Said;
pub use state::StateError;
pub(crate) use watch::{WatchClient, WatchStatus};

use state::Kept;
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

impl Kept for HostGuarantees {
    /// Each machine is named once.
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

fn is_about(found: &str, host: &str) -> Result<(), String> {
    let same = found == host;
    same.then_some(())
        .ok_or_else(|| format!("it is about {found:?}, not {host:?}"))
}
