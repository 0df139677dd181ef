//! The vCPU agent beside the packet loop, which a reload starts, changes or ends.

use super::HostError;
use super::vcpu::{AgentEnd, VcpuThread};
use crate::metrics::Vcpus;
use tailbound_agent::AgentConfig;

/// The vCPU agent of the daemon, if one is configured.
pub(super) struct Agent {
    thread: Option<VcpuThread>,
    /// The end of the agent that ran last.
    end: AgentEnd,
    /// The measurements of the agent, for other threads.
    vcpus: Vcpus,
}

impl Agent {
    /// Starts the agent, if one is configured. Its measurements are shown by `vcpus`.
    ///
    /// # Errors
    /// The agent cannot work.
    pub(super) fn start(config: Option<AgentConfig>, vcpus: Vcpus) -> Result<Self, HostError> {
        let thread = config.map(VcpuThread::start).transpose()?;
        let agent = Self {
            thread,
            end: AgentEnd::default(),
            vcpus,
        };
        agent.show();
        Ok(agent)
    }

    /// Returns the means to prepare another configuration on another thread.
    pub(super) fn starter(&self) -> AgentStarter {
        AgentStarter {
            is_running: self.thread.is_some(),
            end: self.end.clone(),
        }
    }

    /// Starts, changes or ends the agent.
    pub(super) fn reconfigure(&mut self, next: NextAgent) {
        match (next.config, next.started) {
            (_, Some(started)) => self.thread = Some(started),
            (Some(config), None) => {
                if let Some(running) = &self.thread {
                    running.configure(config);
                }
            }
            (None, None) => {
                if let Some(running) = self.thread.take() {
                    running.retire(&self.end);
                }
            }
        }
        self.show();
    }

    fn show(&self) {
        self.vcpus.set(self.thread.as_ref().map(VcpuThread::shared));
    }
}

/// Prepares an agent while the loop goes on.
pub(super) struct AgentStarter {
    is_running: bool,
    end: AgentEnd,
}

impl AgentStarter {
    /// Starts an agent for `config` if none runs, once the agent that ran last has ended.
    ///
    /// # Errors
    /// The agent cannot work.
    pub(super) fn prepare(&self, config: Option<AgentConfig>) -> Result<NextAgent, HostError> {
        let started = match &config {
            Some(config) if !self.is_running => {
                self.end.wait();
                Some(VcpuThread::start(config.clone())?)
            }
            _ => None,
        };
        Ok(NextAgent { config, started })
    }
}

/// A configuration of the agent that is not in force yet.
pub(super) struct NextAgent {
    /// `None` for no agent.
    config: Option<AgentConfig>,
    /// The agent's thread, if none runs yet.
    started: Option<VcpuThread>,
}
