//! What the placement service has promised to this host's machines: taken from
//! its stream, kept when it is away, and across a restart.
//!
//! `feed` follows the stream on a thread of its own, `past` says what an older
//! word counts, `state` keeps the last one in a file; the packet loop gets each
//! new one through a channel.

mod feed;
mod past;
mod state;

pub(crate) use feed::{Feed, FeedStatus};
pub use state::StateError;

use std::collections::HashSet;
use std::path::PathBuf;
use tailbound_api::{HostGuarantees, VmName};
use tailbound_client::{Settings, SettingsError};

/// Where the last word is kept where nobody says otherwise.
pub const DEFAULT_STATE: &str = "/var/lib/tailbound/guarantees.json";

/// Which placement service promises what here.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// How it is reached.
    pub service: Settings,
    /// What it calls this host.
    pub host: String,
    /// The file that keeps its last word.
    pub state: PathBuf,
}

/// Why the placement service cannot be followed, whether it answers or not.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its address, the token or the authority cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its last word cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is no thread for it.
    #[error("cannot start the thread that follows the placement service: {0}")]
    Thread(std::io::Error),
}

/// What is wrong with guarantees that are to be `host`'s.
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
