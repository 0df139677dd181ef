//! Runs the vCPU agent: as a thread beside the packet loop, or by itself.

use super::{notify, system};
use crate::HostError;
use crate::config::ConfigError;
use crate::control::AskCpu;
use crate::metrics::{Exposition, Server, Vcpus};
use crate::wake::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tailbound_agent::meters::Shared;
use tailbound_agent::watch::Watcher;
use tailbound_agent::{AgentConfig, AgentError, ConfigSource, HostClaim, Pool, Restored, Schedule};
use tailbound_api::{CpuUse, HostCpu};

/// The agent beside a packet loop, which it never delays. Dropping it restores
/// every thread.
pub(super) struct VcpuThread {
    configs: Option<Sender<AgentConfig>>,
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

impl VcpuThread {
    pub(super) fn start(config: AgentConfig) -> Result<Self, HostError> {
        let claim = HostClaim::take(&config).map_err(AgentError::from)?;
        let mut watcher = Watcher::open(beside_this_loop(config))?;
        let shared = watcher.shared();
        let (configs, received) = channel();
        let work = move || {
            let mut schedule = Schedule::start();
            loop {
                match received.recv_timeout(schedule.run_due(&mut watcher)) {
                    Ok(config) => {
                        watcher.reconfigure(config);
                        schedule = Schedule::start();
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            log(watcher.restore());
            drop(claim);
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

    pub(super) fn configure(&self, config: AgentConfig) {
        if let Some(configs) = &self.configs {
            // It takes configurations for as long as it lives.
            let _ = configs.send(beside_this_loop(config));
        }
    }

    /// Ends the agent without waiting until it has restored every thread; `end` waits for that.
    pub(super) fn retire(self, end: &AgentEnd) {
        let (ended, end_signal) = channel();
        end.set(end_signal);
        let ending = std::thread::Builder::new().name("vcpu-end".to_owned());
        let work = move || {
            drop(self);
            drop(ended);
        };
        if let Err(error) = ending.spawn(work) {
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

/// Returns the configuration of an agent whose host's own path is this very process.
fn beside_this_loop(config: AgentConfig) -> AgentConfig {
    config.with_path(Some(std::process::id()))
}

/// Returns a function for the CPU that an agent offers to the placement service.
pub(super) fn ask_cpu(vcpus: Vcpus) -> AskCpu {
    Box::new(move || vcpus.offer().map(offered))
}

fn offered(pool: Pool) -> HostCpu {
    let Pool {
        cpus,
        threads,
        largest,
        reservable,
        disturbance,
    } = pool;
    HostCpu {
        cpus,
        threads,
        largest,
        reservable,
        overrun: disturbance.overrun,
        interrupts: disturbance.interrupts,
        steal: disturbance.steal,
        share: disturbance.share,
        unpromised: CpuUse::default(),
    }
}

/// The end of the agent that ran last: the moment at which it has restored every thread and
/// released its state. The next agent cannot open the state before.
#[derive(Clone, Default)]
pub(super) struct AgentEnd(Arc<Mutex<Option<Receiver<()>>>>);

impl AgentEnd {
    fn set(&self, end_signal: Receiver<()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_signal);
    }

    pub(super) fn wait(&self) {
        let end_signal = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nothing is sent: it ends when its other end does.
        end_signal.map(|end_signal| end_signal.recv());
    }
}

/// Logs the outcome of restoring the threads.
fn log(restored: Result<Restored, AgentError>) {
    match restored {
        Ok(restored) => {
            for drift in &restored.drifted {
                tracing::warn!("drifted, stays as it is: {drift}");
            }
            for why in &restored.failed {
                tracing::error!("not restored: {why}");
            }
            tracing::info!(
                restored = restored.restored,
                exited = restored.exited,
                "threads are as they were before"
            );
        }
        Err(error) => {
            tracing::error!(%error, "threads stay as they are; run tailbound vcpu restore");
        }
    }
}

/// Keeps guests in their classes until SIGTERM or SIGINT, then restores them.
///
/// # Errors
/// The configuration has mistakes, the state or the metrics address cannot be
/// used.
pub fn watch_vcpus(source: &ConfigSource, state: Option<&Path>) -> Result<(), HostError> {
    let signals = Signals::catch().map_err(system("catch signals"))?;
    let config = source.load(state).map_err(ConfigError::from)?;
    let address = config.metrics;
    let _claim = HostClaim::take(&config).map_err(AgentError::from)?;
    let mut watcher = Watcher::open(config)?;
    let vcpus = Vcpus::default();
    vcpus.set(Some(watcher.shared()));
    let server = address
        .map(|address| Server::start(address, signals.waker(), vcpus, None))
        .transpose()?;
    let mut schedule = Schedule::start();
    let mut wait = schedule.run_due(&mut watcher);
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
                    schedule = Schedule::start();
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
        wait = schedule.run_due(&mut watcher);
    }
    notify::notify("STOPPING=1");
    let restored = watcher.restore()?;
    log(Ok(restored));
    Ok(())
}

/// Sleeps for `wait`, or until a waker wakes the loop.
fn sleep(signals: &Signals, wait: Duration) -> Result<(), HostError> {
    let timeout = Timespec::try_from(wait).ok();
    let mut ready = [PollFd::new(signals, PollFlags::IN)];
    match poll(&mut ready, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(system("wait")(error.into())),
    }
}
