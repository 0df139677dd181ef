//! Why there is no verdict.

use std::io;
use std::path::PathBuf;
use tailbound_probe::ConfigError;
use tailbound_probe_run::sleeper::SleeperError;
use tailbound_sys::cpuset::Cpus;

/// Why a probe did not run. Its message says what would help.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The arguments make no sense together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A CPU was asked for that is not there.
    #[error("CPU {cpu} is not among those this process may run on: {allowed}")]
    Cpu { cpu: u32, allowed: Cpus },
    /// The kernel does not say where this process may run.
    #[error("asking the kernel for this process's CPUs: {0}")]
    Affinity(io::Error),
    /// A thread could not be put on its CPU, or could not sleep.
    #[error(transparent)]
    Sleeper(#[from] SleeperError),
    /// A rate or duration that makes no test.
    #[error("{0}")]
    Network(String),
    /// The address to serve cannot be had.
    #[error("listening on {address}: {source}")]
    Listen { address: String, source: io::Error },
    /// The histogram log cannot be written.
    #[error("{}: {source}", path.display())]
    Log { path: PathBuf, source: io::Error },
}

/// `EX_OSERR`: the operating system refused something.
const OS_ERROR: u8 = 71;

impl ProbeError {
    /// The exit code; none is that of a verdict.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Cpu { .. } | Self::Network(_) => super::super::USAGE,
            _ => OS_ERROR,
        }
    }
}
