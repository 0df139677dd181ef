//! Running the vCPU agent: as a thread beside the packet loop, or by itself.

use super::{notify, system};
use crate::HostError;
use crate::metrics::{Exposition, Server, Vcpus};
use crate::wake::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tailbound_agent::watch::{Shared, Watcher};
use tailbound_agent::{Restored, VcpuConfig, VcpuError};

/// When what is due.
struct Clock {
    round: Instant,
    sample: Instant,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            round: now,
            sample: now,
        }
    }

    /// Does what is due; returns how long there is nothing to do.
    fn turn(&mut self, watcher: &mut Watcher) -> Duration {
        let (every, sample) = (watcher.config().every, watcher.config().sample);
        if Instant::now() >= self.round {
            watcher.round();
            self.round = Instant::now() + every.into();
        }
        if Instant::now() >= self.sample {
            watcher.sample();
            self.sample = Instant::now() + sample.into();
        }
        let next = self.round.min(self.sample);
        next.saturating_duration_since(Instant::now())
    }
}

/// The agent beside a packet loop, which it never delays. Dropping it restores
/// every thread.
pub(super) struct VcpuThread {
    configs: Option<Sender<VcpuConfig>>,
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

impl VcpuThread {
    pub(super) fn start(config: VcpuConfig) -> Result<Self, HostError> {
        let mut watcher = Watcher::open(config)?;
        let shared = watcher.shared();
        let (configs, received) = channel();
        let work = move || {
            let mut clock = Clock::start();
            loop {
                match received.recv_timeout(clock.turn(&mut watcher)) {
                    Ok(config) => {
                        watcher.reconfigure(config);
                        clock = Clock::start();
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            log(watcher.restore());
        };
        let thread = std::thread::Builder::new()
            .name("vcpu".to_owned())
            .spawn(work)
            .map_err(system("start the vCPU agent"))?;
        Ok(Self {
            configs: Some(configs),
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn configure(&self, config: VcpuConfig) {
        if let Some(configs) = &self.configs {
            // It takes configurations for as long as it lives.
            let _ = configs.send(config);
        }
    }

    /// Ends it without waiting until it has restored every thread.
    pub(super) fn retire(self) {
        let ending = std::thread::Builder::new().name("vcpu-end".to_owned());
        if let Err(error) = ending.spawn(move || drop(self)) {
            tracing::error!(%error, "the vCPU agent ended within the packet loop");
        }
    }

    pub(super) fn shared(&self) -> Shared {
        Shared::clone(&self.shared)
    }
}

impl Drop for VcpuThread {
    fn drop(&mut self) {
        self.configs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says what became of the threads at the end.
fn log(restored: Result<Restored, VcpuError>) {
    match restored {
        Ok(restored) => {
            for what in &restored.left {
                tracing::warn!("left to whoever changed it: {what}");
            }
            for why in &restored.failed {
                tracing::error!("not restored: {why}");
            }
            tracing::info!(
                restored = restored.restored,
                gone = restored.gone,
                "threads are as they were before"
            );
        }
        Err(error) => {
            tracing::error!(%error, "threads stay as they are; run tailbound vcpu restore");
        }
    }
}

/// Where the agent's configuration comes from.
#[derive(Debug, Clone)]
pub enum VcpuSource {
    /// A file, which SIGHUP reads again.
    File(PathBuf),
    /// What was said on the command line.
    Given(Box<VcpuConfig>),
}

impl VcpuSource {
    /// The configuration; the state's place is `state` where that is given.
    ///
    /// # Errors
    /// All mistakes in the file.
    pub fn load(&self, state: Option<&Path>) -> Result<VcpuConfig, HostError> {
        let mut config = match self {
            Self::File(path) => VcpuConfig::load(path)?,
            Self::Given(config) => (**config).clone(),
        };
        if let Some(state) = state {
            state.clone_into(&mut config.state);
        }
        Ok(config)
    }
}

/// Keeps guests in their classes until SIGTERM or SIGINT, then restores them.
///
/// # Errors
/// The configuration has mistakes, the state or the metrics address cannot be
/// used.
pub fn watch_vcpus(source: &VcpuSource, state: Option<&Path>) -> Result<(), HostError> {
    let signals = Signals::catch().map_err(system("catch signals"))?;
    let config = source.load(state)?;
    let address = config.metrics;
    let mut watcher = Watcher::open(config)?;
    let vcpus = Vcpus::default();
    vcpus.set(Some(watcher.shared()));
    let server = address
        .map(|address| Server::start(address, &signals, vcpus, None))
        .transpose()?;
    let mut clock = Clock::start();
    let mut wait = clock.turn(&mut watcher);
    let metrics = server
        .as_ref()
        .map(|server| tracing::field::display(server.address()));
    tracing::info!(guests = watcher.guests().len(), metrics, "ready");
    notify::notify("READY=1");
    loop {
        sleep(&signals, wait)?;
        signals.clear();
        if signals.take_stop() {
            break;
        }
        if signals.take_reload() {
            notify::notify(&notify::reloading());
            match source.load(state) {
                Ok(config) => {
                    if config.metrics != address {
                        tracing::warn!("metrics stay where they are until a restart");
                    }
                    watcher.reconfigure(config);
                    clock = Clock::start();
                    tracing::info!("configuration reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "reload refused; the configuration in force stays");
                }
            }
            notify::notify("READY=1");
        }
        for scrape in server.iter().flat_map(Server::scrapes) {
            scrape.answer(Exposition::default());
        }
        wait = clock.turn(&mut watcher);
    }
    notify::notify("STOPPING=1");
    let restored = watcher.restore()?;
    log(Ok(restored));
    Ok(())
}

/// Until somebody wakes the loop, or for `wait`.
fn sleep(signals: &Signals, wait: Duration) -> Result<(), HostError> {
    let timeout = Timespec::try_from(wait).ok();
    let mut ready = [PollFd::new(signals, PollFlags::IN)];
    match poll(&mut ready, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(system("wait")(error.into())),
    }
}
